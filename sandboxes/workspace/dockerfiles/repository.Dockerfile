# The repository layer: what the project depends on. Shared by commits that depend on the same.
ARG BASE
FROM ${BASE}
COPY env /env
