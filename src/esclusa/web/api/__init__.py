"""The HTTP API, one module per resource.

======================================================================== ================
``/api/kinds``, ``/api/records``, ``/api/search``                        ``records``
``/api/filters``, ``/api/suggest``                                       ``saved_filters``
``/api/lifecycles``, ``/api/records/{table}/repair``                     ``lifecycles``
``/api/stages``, ``/api/rates``, ``/api/leases``, ``/api/budgets``       ``stages``
``/api/cycles``, ``/api/runs``                                           ``cycles``
``/api/series``                                                          ``series``
``/api/history``, ``/api/time-in-state``                                ``history``
``/api/dead-letters``                                                    ``dead_letters``
``/api/status``, ``/api/workers``, ``/api/alerts``, ``/api/audit``       ``status``
``/api/actions``                                                         ``actions``
``/api/alert-rules``, ``/api/alerts/mute``                               ``alert_rules``
``/api/views``, ``/api/archives``, ``/api/artifacts``                    ``views``
``/tick``                                                                ``tick``
``/webhooks/wake``                                                       ``signals``
``/healthz``, ``/readyz``, ``/metrics``                                  ``health``
``/openapi.json``                                                        ``openapi``
======================================================================== ================

``common``, ``filters`` and ``rows`` are shared by several of them.
"""
