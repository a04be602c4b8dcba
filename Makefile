# The targets that people and automation run. Each installs what it needs.

GO      ?= go
BIN     := .build
SEEDS   ?= 20000
TESTED  ?= 5000
FUZZ    ?= 60s
# Two packages at a time: with an empty build cache, three keep two processors so
# busy that tests with time limits of a second or two fail.
TESTING := -timeout 15m -p 2
# -trimpath makes builds independent of the folder, so another clone reuses the build cache.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -trimpath)
# Tests build gloomd without its profile: all its packages would be compiled once more for it.
test test-quick race-all page attack healthy: export GOFLAGS += -pgo=off

VERSION ?= $(shell git describe --tags --dirty 2>/dev/null || git describe --always --abbrev=12 --dirty 2>/dev/null | sed s/^/devel-/)
LDFLAGS := -s -w -X gloom/cmd/internal/cli.version=$(VERSION)

# Where make install puts files; DESTDIR is put before each of these paths.
PREFIX   ?= /usr/local
ZSH      ?= $(PREFIX)/share/zsh/site-functions
PROGRAMS := gloomd gloom gloom-bench jobd jobd-master jobctl jq-master serverlessd
# The units in the sources name /usr/bin; make install replaces it by
# $(PREFIX)/bin.
UNITS    ?= $(PREFIX)/lib/systemd/system
SYSUSERS ?= $(PREFIX)/lib/sysusers.d

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build all programs into .build
	@mkdir -p $(BIN)
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ $(PROGRAMS:%=./cmd/%)

.PHONY: install
install: ## install programs, manual pages, completion, units and examples below PREFIX=/usr/local
	@test -x $(BIN)/gloomd && test -z "$$(find go.mod wire broker clients/go bench cmd -type f -newer $(BIN)/gloomd)" || $(MAKE) --no-print-directory build
	@set -e; to=$(DESTDIR)$(PREFIX); \
	bash=$$to/share/bash-completion/completions; zsh=$(DESTDIR)$(ZSH); fish=$$to/share/fish/vendor_completions.d; \
	install -d $$to/bin $$to/share/man/man1 $$bash $$zsh $$fish; \
	for p in $(PROGRAMS); do \
		install -m 755 $(BIN)/$$p $$to/bin/; \
		$(BIN)/$$p man $$to/share/man/man1; \
		$(BIN)/$$p completion bash > $$bash/$$p; \
		$(BIN)/$$p completion zsh > $$zsh/_$$p; \
		$(BIN)/$$p completion fish > $$fish/$$p.fish; \
	done; \
	units=$(DESTDIR)$(UNITS); users=$(DESTDIR)$(SYSUSERS); examples=$$to/share/doc/gloom/examples; \
	install -d $$units $$users $$examples; \
	for u in cmd/gloomd/deploy/systemd/gloomd*.s* cmd/jobd/systemd/*.service cmd/jq-master/deploy/*.service cmd/serverlessd/deploy/*.service; do \
		sed 's,=/usr/bin/,=$(PREFIX)/bin/,' $$u > $$units/$${u##*/}; \
		chmod 644 $$units/$${u##*/}; \
	done; \
	install -m 644 cmd/jobd/systemd/sysusers.conf $$users/jobd.conf; \
	install -m 644 cmd/gloomd/gloomd.toml cmd/jobd/config/examples/* $$examples/

.PHONY: run
run: build ## start the broker on its default ports
	$(BIN)/gloomd --log-format console

.PHONY: demo
demo: build ## run a broker and three workers, with a job for every file of this repository
	@GO="$(GO)" BIN=$(BIN) cmd/gloom/demo.sh

# The race detector makes tests ten times slower, so with it random tests, and tests that cut a
# stream at every byte, run in a short form. Tests without goroutines also run in full, without the
# race detector. The simulator takes TESTED seeds here, and SEEDS in make sim. Fuzzing is bounded
# by a count here: when its time is up, go test sometimes fails with "context deadline exceeded"
# and no finding. Packages whose tests start programs and wait for them run without the race
# detector here, because the packages that these programs consist of have race tests of their own.
# make race-all runs them with it, except for the tests of pages in Chromium, which needs the
# processors for itself.
# These tests also run apart here: programs' tests with limits of time failed beside them.
PAGES := /page/(browser|probe)$$
STARTERS := /cmd/(gloom|gloom-bench|jobctl|jobd|jobd-master|jq-master|serverlessd)$$|/(probe|fleetprobe|attack|deploy|live|browser)$$
# These packages go first, so that at the end no processor waits for them.
LONGEST := ./cmd/jobd/bridge ./cmd/serverlessd/store
.PHONY: test
test: lint ## run all checks and tests: race detector, invariants, simulator, fuzz targets, all clients
	$(GO) test -race -short -vet=off $(TESTING) $(LONGEST) $$($(GO) list ./... | grep -vE '$(STARTERS)')
	$(GO) test -short -vet=off $(TESTING) $$($(GO) list ./... | grep -E '$(PAGES)')
	$(GO) test -short -vet=off $(TESTING) $$($(GO) list ./... | grep -E '$(STARTERS)' | grep -vE '$(PAGES)')
	$(GO) test -C clients/go/examples/trace -vet=off ./... # a module of its own
	$(GO) test -tags invariants -vet=off $(TESTING) ./wire ./broker ./broker/hub ./broker/sim
	$(GO) test -vet=off $(TESTING) ./broker/sim -seeds $(TESTED)
	@$(MAKE) --no-print-directory fuzz FUZZ=10000x
	python3 -m unittest discover -s clients/python/tests
	tsc -p clients/node && cd clients/node && node --test test/
	ulimit -Sn 2048 && phpunit -c clients/php # one test opens more than 1024 files

# The parts that most changes concern. Their tests need Go and nothing else.
QUICK := ./wire ./broker ./broker/container ./broker/hub ./broker/server ./clients/go
.PHONY: test-quick
test-quick: ## vet, and short tests of core, wire, hub, server and the Go client (no root, no servers)
	$(GO) vet $(QUICK)
	$(GO) test -short -vet=off -p 2 $(QUICK)

.PHONY: race-all
race-all: deps ## test every package under the race detector (half an hour)
	$(GO) test -race -short -vet=off $(TESTING) $$($(GO) list ./... | grep -vE '$(PAGES)')

.PHONY: sim
sim: ## simulate the core in SEEDS=20000 random worlds
	$(GO) test ./broker/sim -timeout 0 -seeds $(SEEDS)

# Each package is built once. Its fuzz targets run in its folder, where go test
# reads and writes their inputs. make lint runs vet.
.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZ=60s
	@set -e; bin=$$(mktemp); trap 'rm -f $$bin' EXIT; cache=$$($(GO) env GOCACHE)/fuzz; \
	for pkg in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		$(GO) test -c -vet=off -fuzz . -o $$bin $$pkg; \
		for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$pkg/*_test.go | cut -c6- | sort); do \
			echo "fuzz $$pkg $$f"; \
			(cd $$pkg && $$bin -test.run '^$$' -test.fuzz "^$$f\$$" -test.fuzztime $(FUZZ) -test.parallel 2 \
				-test.fuzzcachedir $$cache/gloom/$${pkg#./}); \
		done; \
	done

.PHONY: attack
attack: ## run all attacks on a broker: on memory, on turns, and at random (some minutes)
	$(GO) test ./broker/server/attack -count 1 -timeout 20m -v -full

.PHONY: healthy
healthy: ## put a broker under load for ten minutes; it must have no findings
	$(GO) test ./broker/admin -run TestHealthyBrokerHasNoFindings -count 1 -timeout 12m -v -healthy 10m

# -registry compares the libraries with the packages that npm downloads, so it
# needs the network.
.PHONY: page
page: deps ## run all tests of the page: every width, fifty tabs, libraries against npm; pictures in .build/page
	@mkdir -p $(BIN)/page
	$(GO) test ./broker/page -count 1 -registry
	$(GO) test ./broker/admin/page/browser -count 1 -timeout 20m -long -shots $(CURDIR)/$(BIN)/page
	$(GO) test ./broker/admin/page/probe -count 1 -timeout 20m -v
	$(GO) test ./cmd/jq-master/page/browser -count 1 -timeout 20m -shots $(CURDIR)/$(BIN)/page
	$(GO) test ./cmd/serverlessd/page/browser -count 1 -timeout 20m -shots $(CURDIR)/$(BIN)/page -picture $(CURDIR)/$(BIN)/page/serverlessd.png
	$(GO) test ./cmd/jobd-master/page/browser -count 1 -timeout 20m -shots $(CURDIR)/$(BIN)/page

.PHONY: lint
lint: deps ## check formatting, vet, staticcheck, shell scripts, names in the compiler's profile
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) vet -C clients/go/examples/trace ./...
	$(GO) vet -C bench/jobd/river ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.7.0 ./...
	shellcheck $$(grep -rlI '^#!/bin/sh' --exclude-dir=.git --exclude-dir=$(BIN) .)
	@GO="$(GO)" cmd/gloomd/pgo-names.sh

.PHONY: microbench
microbench: ## run the benchmarks of core and wire six times, through benchstat
	$(GO) test ./broker ./wire -run '^$$' -bench . -benchmem -count 6 | tee $(BIN)/microbench.txt
	$(GO) run golang.org/x/perf/cmd/benchstat@latest $(BIN)/microbench.txt

.PHONY: bench
bench: build ## race gloomd against other servers, small: about two minutes
	$(BIN)/gloom-bench race --small

.PHONY: race
race: build ## race gloomd against other servers, in full
	$(BIN)/gloom-bench race -o $(BIN)/race.json

.PHONY: pgo
pgo: build ## profile gloomd under the load of the race into cmd/gloomd/default.pgo, for the compiler
	@GO="$(GO)" BIN=$(BIN) cmd/gloomd/pgo.sh

.PHONY: deb
deb: build ## build a Debian package in .build
	cmd/gloomd/deploy/debian/build.sh $(BIN) $(BIN)

# It makes an archive for each of ARCHS, with the layout of make install, a
# Debian package for the architecture of this machine, a CycloneDX SBOM, and
# the checksums of all of these files.
RELEASE := $(BIN)/release
ARCHS   ?= amd64 arm64
.PHONY: release
release: build ## build archives, package, SBOM and checksums of VERSION in .build/release
	rm -rf $(RELEASE)
	mkdir -p $(RELEASE)
	@set -e; for arch in $(ARCHS); do \
		name=gloom-$(VERSION)-linux-$$arch; \
		$(MAKE) --no-print-directory install DESTDIR=$(RELEASE)/$$name PREFIX=; \
		for p in $(PROGRAMS); do rm $(RELEASE)/$$name/bin/$$p; done; \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(RELEASE)/$$name/bin/ $(PROGRAMS:%=./cmd/%); \
		install -m 644 LICENSE README.md $(RELEASE)/$$name/; \
		tar -czf $(RELEASE)/$$name.tar.gz --owner 0 --group 0 -C $(RELEASE) $$name; \
		rm -r $(RELEASE)/$$name; \
	done
	cmd/gloomd/deploy/debian/build.sh $(BIN) $(RELEASE)
	$(GO) run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 mod -licenses -json -output $(RELEASE)/gloom-$(VERSION).cdx.json
	cd $(RELEASE) && sha256sum * > SHA256SUMS

.PHONY: deps
deps: ## install what the tests need (as root, from Debian packages)
	@command -v $(GO) >/dev/null || { echo "Go is missing: install it from go.dev"; exit 1; }
	@.ci/deps

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN)
