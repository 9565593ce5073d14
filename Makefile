# The project's commands. `make` alone prints them.
# Honours CARGO, CARGO_TARGET_DIR, JOBS (cargo -j), SIMULATE_SECONDS (of `make test`) and, for the demo, LISTEN,
# STATUS and DEMO_DIR.

CARGO  ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# The server and the tools are two workspaces that share one target directory.
export CARGO_TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
TOOLS := --manifest-path tools/Cargo.toml
CARGO_JOBS := $(if $(JOBS),-j$(JOBS))
stage = @echo "== $$(date +%T) $(1)"

SIMULATE_SECONDS ?= 60
# What `make simulate` does: one seed, or new seeds for some time.
simulate-arguments = $(if $(SEED),--seed $(SEED),--seconds $(if $(HOURS),$(shell awk 'BEGIN { print int($(HOURS) * 3600) }'),$(or $(SECONDS),300)))

LISTEN   ?= 127.0.0.1:8080
# Where the demo's dashboard is.
STATUS   ?= 127.0.0.1:9180
DEMO_DIR ?= $(TARGET)/demo

.PHONY: docs tarball php-library test-unit test-server test-tools compare image test-image packages rpm repository sbom release-files test-packages help setup-build setup-demo setup-test setup-packages setup-image setup-tools toolchain build demo demo-build demo-site test fmt-check clippy test-build test-run simulate audit test-nightly instructions

help:
	@echo 'make build   target/release/howdah, howdah-import, howdah-bench and the library for PHP'
	@echo 'make php-library PHP_CONFIG=php-config8.4   the library for another PHP, in target/php-libraries'
	@echo 'make demo    install what is missing, build, serve the guestbook on http://$(LISTEN)'
	@echo 'make docs    the site of the documentation in target/docs/site; REPOSITORY=https://... is for its links'
	@echo 'make packages   Debian packages of this release in target/packages'
	@echo 'make image   a container image of those packages in target/image; test-image runs it'
	@echo 'make tarball   the programs of those packages with an install.sh, in target/tarball'
	@echo 'make rpm     an rpm of the same in target/rpm'
	@echo 'make repository URL=...   a signed apt repository of target/packages in target/repository'
	@echo 'make sbom    what the programs are made of (CycloneDX) in target/sbom'
	@echo 'make release-files   those that are built, with SHA256SUMS, in target/release-files'
	@echo 'make test-packages   the packages, installed, upgraded and purged in fresh Debian 12 and 13'
	@echo 'make compare measures Howdah and other servers in five benchmarks, which takes minutes; writes a page for each'
	@echo 'make test-unit   what needs no package beside those of a build: no rival, database, browser'
	@echo 'make simulate   front, pool and cache in virtual time, with faults: SECONDS=300, HOURS=1 or SEED=n'
	@echo 'make test    everything: format, lints, unit tests, real applications, rivals compared'
	@echo 'make audit   dependencies: licences, advisories, duplicates, those that are not used'
	@echo 'make test-nightly   the longest tests, which make test leaves out'
	@echo 'make instructions   the instructions of a request, compared with benchmarks/instructions.json'
	@echo 'make test-server, make test-tools   the same for the server, and for load tester and lab'

setup-build setup-demo setup-test setup-packages setup-image: setup-%:
	@scripts/setup-debian.sh $*

setup-tools:
	@scripts/setup-tools.sh

toolchain:
	@command -v $(CARGO) >/dev/null 2>&1 || { \
	  echo 'cargo is not here: install a Rust toolchain first (https://rustup.rs)' >&2; exit 1; }

build: setup-build toolchain
	$(CARGO) build --release $(CARGO_JOBS) -p howdah -p howdah-php -p howdah-import -p howdah-takeover
	$(CARGO) build --release --bins $(CARGO_JOBS) $(TOOLS) -p howdah-lab

# The site is copied, so that what visitors write never lands in the checkout.
# Entries and pictures of an earlier run are kept: they are in $(DEMO_DIR)/data.
demo-site:
	@mkdir -p "$(DEMO_DIR)/data"
	@rm -rf "$(DEMO_DIR)/site"
	@cp -r demo "$(DEMO_DIR)/site"
	@printf '%s\n' '[status]' 'listen = "$(STATUS)"' '' '[[site]]' 'name = "guestbook"' 'root = "public"' \
	  'front_controller = "/index.php"' 'cache = "on"' > "$(DEMO_DIR)/site/howdah.toml"
	@DEMO_DATA="$$(cd "$(DEMO_DIR)" && pwd)/data" php "$(DEMO_DIR)/site/seed.php"

# Unoptimised, because compiling takes a third of the time of a release: a newcomer waits for the first page.
demo-build: setup-demo toolchain
	$(CARGO) build $(CARGO_JOBS) -p howdah -p howdah-php

demo: demo-build demo-site
	@data="$$(cd "$(DEMO_DIR)" && pwd)/data"; \
	echo; \
	echo '  The guestbook:   http://$(LISTEN)/'; \
	echo '  Log in:          http://$(LISTEN)/login   (user "keeper", password "elephant")'; \
	echo '  Streamed output: http://$(LISTEN)/live'; \
	echo '  A request:       http://$(LISTEN)/request   (what the server says about it)'; \
	echo '  The dashboard:   http://$(STATUS)/'; \
	echo "  Its data:        $$data"; \
	echo '  This build is not optimised: measure one of "make build" instead.'; \
	echo '  Stop with Ctrl-C.'; \
	echo; \
	exec "$(TARGET)/debug/howdah" serve --config "$(DEMO_DIR)/site/howdah.toml" --listen $(LISTEN) \
	  --env "DEMO_DATA=$$data" --env "DEMO_DASHBOARD=http://$(STATUS)/" \
	  -d upload_max_filesize=10M -d post_max_size=12M

# The links to the source lead to REPOSITORY.
docs: toolchain
	@CARGO="$(CARGO)" scripts/docs.py $(if $(REPOSITORY),--repository $(REPOSITORY))

# For another PHP than that of `make build`: PHP_CONFIG=php-config8.4, or PHP_HEADERS=DIRECTORY.
php-library: toolchain
	@scripts/php-library.sh

# The library is for the release's own PHP.
packages: setup-packages toolchain
	@scripts/packages.sh

# Of the packages that are there.
tarball:
	@scripts/tarball.sh

# Of the packages that are there.
image: setup-image
	@scripts/image.sh

test-image: setup-image
	@scripts/image-test.py $(TARGET)/image/oci

rpm: setup-packages toolchain
	@scripts/rpm.sh

repository: setup-packages
	@scripts/repository.sh $(TARGET)/repository $(or $(URL),$(error URL=https://... says where it will be served)) $(TARGET)/packages

# cargo-cyclonedx is the Rust tool of CycloneDX' own project. Its references name this directory, which is removed.
sbom: toolchain
	@command -v cargo-cyclonedx >/dev/null || $(CARGO) install --locked cargo-cyclonedx
	$(CARGO) cyclonedx --format json --spec-version 1.5 --all --no-build-deps --override-filename howdah
	$(CARGO) cyclonedx $(TOOLS) --format json --spec-version 1.5 --all --no-build-deps --override-filename howdah
	@mkdir -p $(TARGET)/sbom
	@for crate in crates/howdah crates/howdah-php crates/howdah-import crates/howdah-takeover tools/howdah-lab; do \
	  sed 's|path+file://$(CURDIR)/|path+file:///|g' $$crate/howdah.json >$(TARGET)/sbom/$${crate##*/}.cdx.json || exit 1; done
	@rm -f crates/*/howdah.json tools/*/howdah.json

# BUILT: directories made elsewhere, too, for another release of Debian.
release-files:
	@scripts/release-files.sh $(TARGET)/release-files $(or $(BUILT),$(wildcard $(addprefix $(TARGET)/,packages tarball rpm sbom repository)))

test-packages: setup-packages toolchain
	@scripts/test-packages.sh

# The quick form of all five; results go to $(TARGET)/compare.
compare: setup-test build
	@rm -rf $(TARGET)/compare
	$(TARGET)/release/howdah compare --quick --out $(TARGET)/compare

test: test-server test-tools

# In this order, one after the other (each stage uses all cores itself).
test-server: setup-test setup-tools toolchain
	@$(MAKE) --no-print-directory fmt-check
	@$(MAKE) --no-print-directory clippy
	@$(MAKE) --no-print-directory test-build
	@$(MAKE) --no-print-directory test-run

# The load tester and the lab. Some of their tests start the programs that test-build made.
test-tools: setup-test setup-tools toolchain
	$(call stage,tools: format and lints)
	$(CARGO) fmt $(TOOLS) --all --check
	$(CARGO) clippy $(TOOLS) --all-targets $(CARGO_JOBS) -- -D warnings
	$(call stage,tools: build)
	$(CARGO) test $(TOOLS) --no-run $(CARGO_JOBS)
	$(call stage,tools: tests)
	@CARGO="$(CARGO)" scripts/run-tests.py -- $(TOOLS) $(CARGO_JOBS)

# The tests that are marked `#[ignore = "nightly"]`. Only howdah-tests has them: ignored tests elsewhere are not tests.
test-nightly: setup-test setup-tools toolchain
	$(call stage,nightly tests)
	@CARGO="$(CARGO)" scripts/run-tests.py --ignored --only howdah-tests/tests/ -- $(CARGO_JOBS)

# Without the feature `packages` cargo leaves out the tests that need more than the packages of a build.
test-unit: setup-build toolchain
	$(call stage,build and tests)
	@CARGO="$(CARGO)" scripts/run-tests.py -- --no-default-features $(CARGO_JOBS)
	@CARGO="$(CARGO)" scripts/run-tests.py -- --no-default-features $(TOOLS) $(CARGO_JOBS)

# Not part of `make test`: the tools take several minutes to compile, and the advisories come from GitHub.
# CHECKS: those of cargo-deny; without a network, CHECKS="bans licenses sources".
audit: toolchain
	@CARGO="$(CARGO)" scripts/audit.sh $(CHECKS)

# Not part of `make test`, because it needs an optimised build.
instructions: setup-test toolchain
	@CARGO="$(CARGO)" scripts/instructions.py $(CARGO_JOBS)

fmt-check:
	$(call stage,format)
	$(CARGO) fmt --all --check

clippy:
	$(call stage,lints)
	$(CARGO) clippy --workspace --all-targets $(CARGO_JOBS) -- -D warnings

# Builds the programs, too, which the tests start: each is of a package with integration tests. A `cargo build` of
# them would compile half of the dependencies once more, since tests ask for more of their features.
test-build:
	$(call stage,build)
	$(CARGO) test --workspace --no-run $(CARGO_JOBS)

# Several test programs run side by side; a program that hangs is killed after a quarter of an hour.
test-run:
	$(call stage,tests)
	@CARGO="$(CARGO)" scripts/run-tests.py -- $(CARGO_JOBS)
	@$(MAKE) --no-print-directory simulate SECONDS=$(SIMULATE_SECONDS) HOURS= SEED=

# The program is built with the test that starts it, for the reason given at test-build.
simulate: toolchain
	$(call stage,simulation)
	$(CARGO) test --workspace --no-run $(CARGO_JOBS) --test simulation
	@$(TARGET)/debug/howdah-simulate $(simulate-arguments)
