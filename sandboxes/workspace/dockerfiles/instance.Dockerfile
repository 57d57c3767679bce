# The instance layer: the repository at the base commit, built.
ARG BASE
FROM ${BASE}
COPY tree.tar /tree.tar
