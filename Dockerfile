# PostgreSQL with kvfdw, on the official image:
#
#   docker build -t kvfdw --build-arg PG=17 .
#   docker run -d --name kv -e POSTGRES_PASSWORD=secret -v kvdata:/var/lib/postgresql/data kvfdw
#   docker exec kv psql -U postgres -c 'CREATE EXTENSION kvfdw'
#
# Docker's default seccomp profile forbids io_uring; kvfdw.io_method = auto then reads and writes without
# it.  The memory that is reserved at start is that of the settings: docs/how-to/size-memory.md.
ARG PG=17
FROM postgres:${PG}-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends build-essential postgresql-server-dev-$PG_MAJOR liburing-dev liblz4-dev
COPY . /kvfdw
WORKDIR /build
RUN make -j"$(nproc)" -f /kvfdw/Makefile \
 && make -f /kvfdw/Makefile install DESTDIR=/package

FROM postgres:${PG}-bookworm
RUN apt-get update \
 && apt-get install -y --no-install-recommends liburing2 liblz4-1 \
 && rm -rf /var/lib/apt/lists/* \
 && echo "shared_preload_libraries = 'kvfdw'" >>/usr/share/postgresql/postgresql.conf.sample
COPY --from=build /package/ /
