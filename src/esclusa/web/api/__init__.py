"""The HTTP API. A route's module is named after its path.

``/api/cycles`` is in ``cycles``, ``/api/dead-letters`` in ``dead_letters``, and so on. The rest:

=================================================== ==============
``/api/search``                                     ``records``
``/api/rates``, ``/api/leases``                     ``stages``
``/api/workers``, ``/api/alerts``, ``/api/audit``   ``status``
``/api/archives``                                   ``artifacts``
``/healthz``, ``/readyz``, ``/metrics``             ``health``
``/openapi.json``                                   ``openapi``
=================================================== ==============

``requests``, ``responses``, ``filters`` and ``rows`` are shared by several of them.
"""
