# kvfdw: make, make install, make installcheck as any PGXS extension;
# make demo, test, bench, torture, append, bank, counters, registers, damage, space, idle, backups, versions, powercut,
# campaigns, differential, concurrent, clients, memcached-tests, memcached-oracle, matrix, upgrade, deb, docker, scale-demo, oracle and fuzz do
# their own set-up.
#
#   PG_CONFIG=path    the PostgreSQL to build against (default: pg_config)
#   FAULTS=1          test build: fault injection and stop points
#   WERROR=1          warnings are errors; on in test builds, WERROR=0 turns it off
#
# make -f elsewhere/Makefile builds in the directory where it is called.

EXTENSION = kvfdw
MODULE_big = kvfdw
KV_VERSION = 0.2
DATA = sql/kvfdw--$(KV_VERSION).sql
SCRIPTS = bin/kvfdw_upgrade

PG_CONFIG = pg_config
PGXS := $(wildcard $(shell $(PG_CONFIG) --pgxs 2>/dev/null))

# Each server and flavour has its own objects, so two builds never mix.
PG_NAME := $(shell $(PG_CONFIG) --version 2>/dev/null | cut -d' ' -f1,2 | tr -d ' ')
FLAVOUR := $(PG_NAME)$(if $(filter 1,$(FAULTS)),-faults,)
BUILD = build/$(FLAVOUR)

HERE := $(patsubst %/,%,$(dir $(firstword $(MAKEFILE_LIST))))
SOURCES := $(sort $(wildcard $(addprefix $(HERE)/src/,*.c */*.c */*/*.c)))
OBJS = $(SOURCES:$(HERE)/src/%.c=$(BUILD)/%.o)
EXTRA_CLEAN = build results output_iso regression.diffs regression.out

# without pkg-config they are where the compiler looks
PKG_CONFIG ?= pkg-config
LZ4_CFLAGS := $(shell $(PKG_CONFIG) --cflags liblz4 2>/dev/null)
LZ4_LIBS := $(or $(shell $(PKG_CONFIG) --libs liblz4 2>/dev/null),-llz4)
PG_CPPFLAGS = -I$(HERE)/src $(LZ4_CFLAGS) -MMD -MP $(if $(filter 1,$(FAULTS)),-DKVFDW_FAULTS,)
WERROR ?= $(FAULTS)
PG_CFLAGS = -Wall -Wextra $(if $(filter 1,$(WERROR)),-Werror,) -Wno-sign-compare -Wno-unused-parameter \
	-Wno-missing-field-initializers -Wno-cast-function-type -fno-semantic-interposition $(if $(findstring clang,$(CC)),$(CLANG_CFLAGS),)
# the server's own flags and headers may be for gcc
CLANG_CFLAGS = -Wno-unknown-warning-option -Wno-ignored-optimization-argument -Wno-ignored-attributes
# the library calls its own functions directly: nobody puts others in their place
SHLIB_LINK = -luring $(LZ4_LIBS) -Wl,-Bsymbolic-functions
override with_llvm := no

# sql/ and expected/ hold the pg_regress pairs; sql/ holds the extension script too.
REGRESS = $(sort $(patsubst $(HERE)/sql/%.sql,%,$(filter-out $(HERE)/sql/kvfdw--%.sql,$(wildcard $(HERE)/sql/*.sql))))
REGRESS_OPTS = --inputdir=$(HERE) --load-extension=kvfdw
# these need a server with max_prepared_transactions; test/run.sh has one
ISOLATION = $(sort $(filter-out dead-keys prepared,$(patsubst $(HERE)/test/isolation/specs/%.spec,%,$(wildcard $(HERE)/test/isolation/specs/*.spec))))
ISOLATION_OPTS = --inputdir=$(HERE)/test/isolation --load-extension=kvfdw

all:

ifneq ($(PGXS),)
include $(PGXS)

$(OBJS): $(BUILD)/%.o: $(HERE)/src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(CPPFLAGS) -c -o $@ $<

kvfdw$(DLSUFFIX): build/flavour

# without the link, which a cross compiler has no library for
objects: $(OBJS)

install: install-documents
uninstall: uninstall-documents

-include $(OBJS:.o=.d)
else
all install installcheck:
	@echo "kvfdw: no PostgreSQL server headers found by '$(PG_CONFIG) --pgxs'." >&2
	@echo "Install them (Debian: postgresql-server-dev-15, liburing-dev, liblz4-dev) or run test/lib/setup.sh," >&2
	@echo "or give PG_CONFIG=/path/to/pg_config." >&2
	@exit 1
clean:
	rm -rf $(EXTRA_CLEAN) kvfdw.so
distclean: clean
endif

# The users' documents keep their tree, so that links between them work; links to other documents become text.
# The manual page is in the directory of the server's version.
DOCUMENTS = README.md docs/tutorial*.md docs/how-to/* docs/reference/* docs/explanation/* bench/results/*.md bench/results/*.svg bench/results/*.tsv
documents_in = $(DESTDIR)$(docdir)/extension/kvfdw
manual_in = $(DESTDIR)$(mandir)/man1
install-documents:
	@cd $(HERE) && for file in $(DOCUMENTS); do \
		install -D -m 644 "$$file" '$(documents_in)'/"$$file" || exit; \
	done
	@find '$(documents_in)' -name '*.md' -exec sed -E -i 's@\[([^]]+)\]\(((\.\./)*(CONTRIBUTING\.md|LICENSE|test/|docs/internals/|internals/)[^)]*)\)@\1@g' {} +
	@install -D -m 644 $(HERE)/bin/kvfdw_upgrade.1 '$(manual_in)/kvfdw_upgrade.1'
uninstall-documents:
	rm -rf '$(documents_in)'
	rm -f '$(manual_in)/kvfdw_upgrade.1'
	@# PGXS would remove bin/kvfdw_upgrade there
	rm -f '$(DESTDIR)$(bindir)/kvfdw_upgrade'

# Files that change only when what they record changes: the objects' compiler
# flags, and the flavour that the library in this directory was linked from.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(CFLAGS) $(CPPFLAGS)' | cmp -s - $@ || echo '$(CC) $(CFLAGS) $(CPPFLAGS)' >$@
build/flavour: FORCE
	@mkdir -p $(@D)
	@echo '$(FLAVOUR) $(OBJS)' | cmp -s - $@ || echo '$(FLAVOUR) $(OBJS)' >$@

# These install what is missing, build, and start private servers.
demo:
	@bash $(HERE)/test/demo/demo.sh
test:
	@bash $(HERE)/test/run.sh
bench:
	@bash $(HERE)/bench/run.sh
torture append bank counters registers crowd damage space idle versions:
	@bash $(HERE)/test/campaign/campaign.sh $@ $(SECONDS)
backups:
	@bash $(HERE)/test/campaign/campaign.sh backup $(SECONDS)
campaigns:
	@bash $(HERE)/test/campaign/all.sh $(SECONDS)
powercut:
	@bash $(HERE)/test/powercut/run.sh $(SECONDS)
core:
	@bash $(HERE)/test/core.sh
matrix:
	@bash $(HERE)/test/matrix.sh
differential:
	@bash $(HERE)/test/run.sh differential
concurrent:
	@bash $(HERE)/test/run.sh concurrent
clients:
	@bash $(HERE)/test/run.sh clients
memcached-tests:
	@bash $(HERE)/test/clients/memcached.sh
memcached-oracle:
	@bash $(HERE)/test/clients/oracle.sh
oracle fuzz:
	@bash $(HERE)/test/unit/run.sh $@ $(or $(ROUNDS),$(SECONDS))

upgrade:
	@bash $(HERE)/test/upgrade.sh
scale-demo:
	@bash $(HERE)/test/scale/demo.sh $(SECONDS)
deb:
	@bash $(HERE)/test/deb.sh
docker:
	@bash $(HERE)/test/docker.sh

distclean: workclean
workclean:
	rm -rf .work

.PHONY: all install install-documents uninstall-documents installcheck clean distclean demo test bench torture append bank counters registers crowd damage space idle backups versions powercut campaigns \
	clients core matrix deb docker upgrade scale-demo differential concurrent oracle fuzz memcached-tests memcached-oracle workclean FORCE
FORCE:

# Command-line variables reach the scripts through the environment.
export ROWS ROUNDS STATEMENTS STEPS SEED LEVEL KIND CLIENTS CONNECTIONS DRIVERS KILLS CUTS ASYNC REGISTERS DISK CONTROL \
	CASES CASE UPSERTS FAULT STATE PG_SOURCE SUITES TESTS ADMISSION TIER VALUE_FILE_KB COMPACT CAMPAIGNS MODES MATRIX MATRIX_DIR PROTOCOLS UPGRADE UPGRADE_DIR DEB_SUITE DEB_DIR DOCKER_DIR POINTS
