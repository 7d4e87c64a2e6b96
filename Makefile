# The commands to build and test podcount. Most need only Go. `make run` is more useful with kubectl.
VERSION   := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT    := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
ARGS      := -v 2 -interval 3s
FUZZTIME  := 5m
FLAGS     := -trimpath -ldflags '-s -w -funcalign=16 -X podcount/internal/build.Version=$(VERSION) -X podcount/internal/build.Commit=$(COMMIT)'
DOCKER    := docker
IMAGE     := podcount:latest
PLATFORMS := linux/$(shell go env GOARCH)
export CGO_ENABLED = 0

.PHONY: build manifests image run test sim sweep mutants e2e fuzz bench lint clean

build: ## build podcount: one static binary, bin/podcount
	go build $(FLAGS) -o bin/podcount .

manifests: ## write deploy/*.yaml from deploy/templates
	go test -count=1 -run '^TestAlertRulesAreTheFileHere$$' ./deploy -update
	for part in podcount policy network-policy; do \
		go run . -manifest=$$part >deploy/$$part.new && mv deploy/$$part.new deploy/$$part.yaml || exit 1; \
	done

# buildx, which several platforms need, sets TARGETARCH itself. Other builders may not.
image: ## build an image of the binary; options: PLATFORMS=linux/amd64,linux/arm64 IMAGE=NAME DOCKER=podman
	@for p in $$(echo $(PLATFORMS) | tr , ' '); do \
		arch=$$(echo $$p | cut -d/ -f2); \
		GOOS=linux GOARCH=$$arch go build $(FLAGS) -o bin/podcount-linux-$$arch . || exit 1; \
	done; \
	case $(PLATFORMS) in *,*) arch_arg= ;; *) arch_arg="--build-arg TARGETARCH=$$arch" ;; esac; \
	$(DOCKER) build --platform $(PLATFORMS) $$arch_arg --build-arg VERSION=$(VERSION) \
		-t $(IMAGE) -f deploy/Dockerfile bin

run: build ## run podcount against a fake API server, without a cluster; ARGS='-v 4' shows more
	@echo compiling the playground
	@go build -o bin/playground ./internal/playground
	@exec bin/playground bin/podcount bin $(ARGS)

test: ## run all tests, without a network and without a C compiler
	go test -count=1 ./...

sim: ## simulate clusters and faults: SEEDS=1000 runs the seeds 1 to 1000, and SEEDS=17-17 runs seed 17; ONLY=3,8 runs only these steps; TRACE=FILE.html replays one seed
	@[ -n '$(SEEDS)' ] || { echo 'use: make sim SEEDS=COUNT, or make sim SEEDS=FIRST-LAST'; exit 2; }
	SEEDS='$(SEEDS)' ONLY='$(ONLY)' TRACE='$(TRACE)' go test -count=1 -timeout 0 -run '^TestSimulation$$'

sweep: ## let each request fail in each way: all of them, or with CASE='list pods' those whose name contains that
	CASE='$(or $(CASE),all)' go test -count=1 -timeout 0 -run '^TestSweep$$'

mutants: ## break each rule on purpose, and check that a test fails
	bash testdata/mutants/run

e2e: ## run the behaviours on a real cluster: make e2e KUBECONFIG=FILE [CONTEXT=NAME]
	@[ '$(origin KUBECONFIG)' = 'command line' ] || { \
		echo 'use: make e2e KUBECONFIG=FILE'; \
		echo 'It creates nodes, roles, policies and a CRD in that cluster, and deletes them at the end.'; \
		exit 2; \
	}
	PODCOUNT_E2E=1 KUBECONFIG='$(KUBECONFIG)' CONTEXT='$(CONTEXT)' \
		go test -count=1 -v -timeout 30m -parallel 16 -run '^TestBehavioursOnARealCluster$$' .

fuzz: ## give each parser random input for FUZZTIME
	@for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$package || exit 1; \
		done; \
	done

bench: ## run the benchmarks, which takes about two minutes
	go test -run '^$$' -bench . -benchtime 300ms ./...

lint: ## run stricter checks than the tests: .ci/run runs both
	bash .ci/lint

clean: ## delete bin/
	rm -rf bin
