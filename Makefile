# Everything needs Go, make and git only. Tools come from the nested module in tools/.
GO       ?= go
BIN      := bin
CRDS     := charts/agent-sandbox/crds
TOOL     := $(GO) tool -modfile=tools/go.mod

.DEFAULT_GOAL := help
.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: generate
generate: ## Generate deepcopy functions and CRDs from proto/.
	@mkdir -p $(CRDS) && rm -rf $(BIN)/crds && mkdir -p $(BIN)/crds
	$(TOOL) controller-gen object paths=./proto/...
	$(TOOL) controller-gen crd:maxDescLen=0 paths=./proto/agents/... output:crd:dir=$(BIN)/crds
	$(TOOL) controller-gen crd:maxDescLen=0 paths=./proto/extensions/... output:crd:dir=$(BIN)/crds
	@# A PodSpec with descriptions is too large for kubectl apply, so only the two CRDs without one keep theirs.
	$(TOOL) controller-gen crd paths=./proto/extensions/... output:crd:dir=$(BIN)/crds/full
	@cp $(BIN)/crds/agents.x-k8s.io_sandboxes.yaml $(CRDS)/sandboxes.agents.x-k8s.io.yaml
	@cp $(BIN)/crds/extensions.agents.x-k8s.io_sandboxtemplates.yaml $(CRDS)/sandboxtemplates.extensions.agents.x-k8s.io.yaml
	@cp $(BIN)/crds/full/extensions.agents.x-k8s.io_sandboxclaims.yaml $(CRDS)/sandboxclaims.extensions.agents.x-k8s.io.yaml
	@cp $(BIN)/crds/full/extensions.agents.x-k8s.io_sandboxwarmpools.yaml $(CRDS)/sandboxwarmpools.extensions.agents.x-k8s.io.yaml
