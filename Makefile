# Everything here needs Go, make and git only. Tools come from the nested module in tools/, versions pinned.
GO        ?= go
BIN       := bin
CRDS      := charts/agent-sandbox/crds
TOOL      := $(GO) tool -modfile=tools/go.mod
VERSION   ?= $(shell git describe --tags --always 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X main.version=$(VERSION) -X main.gitVersion=$(VERSION)
FUZZTIME  ?= 30s
SOAK      ?= 60s
TESTFLAGS ?= -shuffle=on -timeout=40m

.DEFAULT_GOAL := help
.PHONY: help build cluster generate check chart helm test race fuzz soak demo bench bench-full bench-peers

help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

build: ## Build router, controller and runtime into bin/.
	@mkdir -p $(BIN)
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./router ./controller ./runtime

cluster: ## Build the local control plane into bin/ (5 to 10 minutes the first time).
	@mkdir -p $(BIN)
	@echo "building the local control plane; the first time takes 5 to 10 minutes ..."
	cd test/cluster && $(GO) build -o ../../$(BIN)/cluster \
	  -ldflags "-X k8s.io/component-base/version.gitVersion=$$($(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)" .

generate: ## Generate deepcopy functions and CRDs from proto/, and the chart's README from its values.
	@rm -rf $(BIN)/crds && mkdir -p $(BIN)/crds $(CRDS)
	$(TOOL) controller-gen object paths=./proto/...
	$(TOOL) controller-gen crd:maxDescLen=0 paths=./proto/agents/... output:crd:dir=$(BIN)/crds
	$(TOOL) controller-gen crd:maxDescLen=0 paths=./proto/extensions/... output:crd:dir=$(BIN)/crds
	@# A PodSpec with descriptions is too large for kubectl apply, so only the two CRDs without one keep theirs.
	$(TOOL) controller-gen crd paths=./proto/extensions/... output:crd:dir=$(BIN)/crds/full
	@cp $(BIN)/crds/agents.x-k8s.io_sandboxes.yaml $(CRDS)/sandboxes.agents.x-k8s.io.yaml
	@cp $(BIN)/crds/extensions.agents.x-k8s.io_sandboxtemplates.yaml $(CRDS)/sandboxtemplates.extensions.agents.x-k8s.io.yaml
	@cp $(BIN)/crds/full/extensions.agents.x-k8s.io_sandboxclaims.yaml $(CRDS)/sandboxclaims.extensions.agents.x-k8s.io.yaml
	@cp $(BIN)/crds/full/extensions.agents.x-k8s.io_sandboxwarmpools.yaml $(CRDS)/sandboxwarmpools.extensions.agents.x-k8s.io.yaml
	$(GO) run ./charts/readme

check: generate ## Formatting, vet, staticcheck, tidy modules, no drift of generated files.
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	git diff --exit-code --stat -- proto charts/agent-sandbox
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff
	cd test/cluster && $(GO) mod tidy -diff
	cd tools/helm && $(GO) mod tidy -diff
	$(GO) vet ./...
	GOOS=darwin $(GO) vet ./router/relay ./router/parse ./router/dial
	$(TOOL) staticcheck ./...

chart: cluster helm ## The tests of the Helm chart: render, lint, refuse, install, upgrade, uninstall.
	$(GO) test -count=1 $(TESTFLAGS) ./test/chart

helm:
	@mkdir -p $(BIN)
	cd tools/helm && $(GO) build -o ../../$(BIN)/helm helm.sh/helm/v4/cmd/helm

test: cluster helm ## Every test, the end-to-end ones with a real API server too.
	$(GO) test $(TESTFLAGS) ./...

race: cluster helm ## The tests again under the race detector.
	$(GO) test -race $(TESTFLAGS) ./...

fuzz: ## Every fuzz target for FUZZTIME (30s).
	@for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep ^Fuzz); do \
	    echo "$$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$pkg || exit 1; \
	  done; \
	done

soak: ## Clients that come and go, WebSockets and endpoint flips for SOAK (60s).
	$(GO) run ./test/soak --duration=$(SOAK)

demo: ## The whole system on this machine: claim a sandbox, run code in it.
	$(GO) run ./test/demo

bench: build ## The short benchmarks, compared with bench/ranges (under 5 minutes).
	$(GO) build -o $(BIN)/bench-tool ./bench
	$(BIN)/bench-tool run --checked=bench/ranges/quick.yaml --budget=3m
	$(BIN)/bench-tool check

bench-full: build ## The whole matrix of benchmarks, into bench/results/ (40 minutes).
	$(GO) build -o $(BIN)/bench-tool ./bench
	$(BIN)/bench-tool run --scenarios=all --contestants=all --rounds=5 --budget=40m --out=bench/results/$$(date +%F)

bench-peers: ## Install nginx and HAProxy to compare with (Debian, Ubuntu).
	@s=; [ "$$(id -u)" = 0 ] || s=sudo; $$s apt-get update -qq && $$s apt-get install -y --no-install-recommends nginx-light haproxy
