# envgen with what its servers and sandboxes need; `docker compose up -d env-server` serves the datasets in ./data.
ARG PYTHON_IMAGE=python:3.12-slim
FROM ${PYTHON_IMAGE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml setup.py README.md LICENSE /src/
COPY envgen /src/envgen
COPY environments /src/environments
COPY pipelines /src/pipelines
COPY sandboxes /src/sandboxes
COPY verifiers /src/verifiers
RUN python3 -m venv /opt/envgen && /opt/envgen/bin/pip install --no-cache-dir "/src[env-server,interpreter]" && rm -rf /src
ENV PATH=/opt/envgen/bin:$PATH
RUN useradd --create-home envgen
USER envgen
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["envgen"]
CMD ["serve", "env", "/data/ds", "--host", "0.0.0.0", "--api-key-env", "ENV_SERVER_KEY"]
