# Every command that podcount's people need. Go is all it takes; kubectl is nice to have for `make run`.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
ARGS    := -v 2 -interval 3s
FUZZTIME := 5m
FLAGS   := -trimpath -ldflags '-s -w -X main.version=$(VERSION)'
DOCKER  := docker
IMAGE   := podcount:latest
PLATFORMS := linux/$(shell go env GOARCH)
export CGO_ENABLED = 0

.PHONY: build manifests image run test sim mutants e2e fuzz bench lint clean

build: ## the product: one static binary, bin/podcount
	go build $(FLAGS) -o bin/podcount .

manifests: ## deploy/*.yaml, from deploy/templates
	go test -count=1 -run '^TestAlertRulesAreTheFileHere$$' ./deploy -update
	for part in podcount policy network-policy; do go run . -manifest=$$part >deploy/$$part.new && mv deploy/$$part.new deploy/$$part.yaml || exit 1; done

image: ## the product in an image, of which it is all; PLATFORMS=linux/amd64,linux/arm64 IMAGE=NAME DOCKER=podman
	@for p in $$(echo $(PLATFORMS) | tr , ' '); do \
		arch=$$(echo $$p | cut -d/ -f2); GOOS=linux GOARCH=$$arch go build $(FLAGS) -o bin/podcount-linux-$$arch . || exit 1; \
	done; \
	case $(PLATFORMS) in *,*) one= ;; *) one="--build-arg TARGETARCH=$$arch" ;; esac; \
	$(DOCKER) build --platform $(PLATFORMS) $$one --build-arg VERSION=$(VERSION) -t $(IMAGE) -f deploy/Dockerfile bin

run: build ## podcount against a fake API server, no cluster needed; ARGS='-v 4' shows more
	@echo compiling the playground; go build -o bin/playground ./internal/playground
	@exec bin/playground bin/podcount bin $(ARGS)

test: ## the whole suite: no network, no C compiler
	go test -count=1 ./...

sim: ## simulated hours of life and faults: make sim SEEDS=1000, or one seed, with its story if it fails: SEEDS=17-17
	@[ -n '$(SEEDS)' ] || { echo 'make sim SEEDS=N, or SEEDS=FROM-TO: how many, or which'; exit 2; }
	SEEDS='$(SEEDS)' go test -count=1 -timeout 0 -run '^TestSimulation$$'

mutants: ## break each rule on purpose, and see that the tests notice
	bash testdata/mutants/run

e2e: ## what the tests show on the fake, on a real cluster: make e2e KUBECONFIG=FILE [CONTEXT=NAME]
	@[ '$(origin KUBECONFIG)' = 'command line' ] || { echo 'make e2e KUBECONFIG=FILE: name the cluster, as nodes, roles, policies and a CRD are made there, and removed'; exit 2; }
	PODCOUNT_E2E=1 KUBECONFIG='$(KUBECONFIG)' CONTEXT='$(CONTEXT)' go test -count=1 -v -timeout 30m -parallel 16 -run '^TestBehavioursOnARealCluster$$' .

fuzz: ## each parser for FUZZTIME, with random input
	@for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$package || exit 1; \
		done; \
	done

bench: ## benchmarks, about two minutes
	go test -run '^$$' -bench . -benchtime 300ms ./...

lint: ## what .ci/run checks beyond the tests
	bash .ci/lint

clean:
	rm -rf bin
