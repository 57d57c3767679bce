# The language layer: an operating system with compilers and test runners.
# Made from any Debian image where one can be pulled; `envgen images bootstrap` makes one where none can.
ARG BASE
FROM ${BASE}
ARG PACKAGES
ENV DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
RUN apt-get update -q \
 && apt-get install -q -y --no-install-recommends ${PACKAGES} \
 && apt-get clean && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
