# Build with: docker build -t esclusa .  Choose extras with: --build-arg EXTRAS=google,parquet
FROM python:3.11-slim AS build
ARG EXTRAS=google,s3,oidc,brotli,uvloop,otel,documents,tenders
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY pyproject.toml README.md requirements.lock ./
# Use the lock as constraints: tested versions, but only of the packages that the service needs.
RUN sed -E '/^ +--hash=/d; s/ *\\$//' requirements.lock > constraints.txt \
    && python -m venv /opt/esclusa
COPY src ./src
RUN /opt/esclusa/bin/pip install --constraint constraints.txt ".[${EXTRAS}]" \
    && /opt/esclusa/bin/python -m compileall -q /opt/esclusa/lib \
    && /opt/esclusa/bin/pip uninstall --yes setuptools pip

FROM python:3.11-slim
RUN useradd --system --uid 10001 --create-home --home-dir /data esclusa
COPY --from=build /opt/esclusa /opt/esclusa
ENV PATH=/opt/esclusa/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    ESCLUSA_HOST=0.0.0.0 ESCLUSA_LOG_FORMAT=json PORT=8080
WORKDIR /data
USER 10001
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["esclusa"]
CMD ["serve"]
