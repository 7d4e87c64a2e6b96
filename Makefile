# The commands to build and test podcount. Most need only Go. `make run` is more useful with kubectl.
ARGS      := -v 2 -interval 3s
FUZZTIME  := 5m
DOCKER    := docker
IMAGE     := podcount:latest
PLATFORMS :=
VERSION   :=
KEY       :=
RELEASE   :=
SIGNERS   :=
PROGRAM   :=
ELECTS    :=
HOURS     :=
JSON      :=
HTML      :=
SERVE     :=
STAGE     :=
FRESH     :=
LEVEL     :=
BUG       :=
ANSWER    :=
HINT      :=
export ARGS FUZZTIME DOCKER IMAGE PLATFORMS VERSION KEY RELEASE SIGNERS PROGRAM ELECTS HOURS JSON HTML SERVE
export STAGE FRESH LEVEL BUG ANSWER HINT
export CGO_ENABLED = 0

# The values of variables are text, and nothing of them is run, except that DOCKER begins with a command. Recipes read
# them from their environment, as in "$$RELEASE". The shell runs nothing of what it reads there, but make would run a
# $(shell ...) of its command line when it passes it on. So each NAME=VALUE of the command line becomes a variable that
# make does not expand.
$(foreach given.name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(given.name)))),\
	$(eval override $(given.name) := $$(value $(given.name)))$(eval export $(given.name))))

# The command that builds podcount. It runs on this machine, also if GOOS and GOARCH name another one. No other setting of
# the go command changes what it builds.
override MAKE_RELEASE := GOENV=off GOOS= GOARCH= GOFIPS140=off GOEXPERIMENT= GOFLAGS= GOWORK=off go run ./deploy/release

.PHONY: build manifests image archive release verify run site learn check hint answer bug
.PHONY: test trial sim sweep mutants e2e airgap fuzz bench lint clean

build: ## build podcount: one static binary, bin/podcount; GOOS, GOARCH and GOFIPS140 are as for go build
	@$(MAKE_RELEASE) build -version "$$VERSION" -fips "$$GOFIPS140" -os "$$GOOS" -arch "$$GOARCH"

manifests: ## write deploy/*.yaml from deploy/templates
	go test -count=1 -run '^TestAlertRulesAreTheFileHere$$' ./deploy -update
	for part in podcount policy network-policy pod-monitor; do \
		go run . -manifest=$$part >deploy/$$part.new && mv deploy/$$part.new deploy/$$part.yaml || exit 1; \
	done

# DOCKER may have several words, as in 'podman --remote', and so may ARGS. set -f lets them stay as they are.
#
# buildx, which several platforms need, sets TARGETARCH itself. Other builders may not.
image: ## build an image with docker; options: PLATFORMS=linux/amd64,linux/arm64 IMAGE=NAME DOCKER=podman
	@set -f; $$DOCKER info >/dev/null || { \
		printf 'make image: %s does not work here: see above. ' "$$DOCKER"; \
		echo 'Without docker, `make archive` writes an image to a file.'; \
		exit 1; \
	} >&2
	@set -f; platforms=$${PLATFORMS:-linux/$$(go env GOARCH)}; \
	for platform in $$(printf '%s' "$$platforms" | tr , ' '); do \
		arch=$${platform#*/}; arch=$${arch%%/*}; \
		$(MAKE_RELEASE) build -version "$$VERSION" -os linux -arch "$$arch" -fips "$$GOFIPS140" \
			-o "bin/podcount-linux-$$arch" || exit 1; \
	done; \
	case $$platforms in *,*) set -- ;; *) set -- --build-arg "TARGETARCH=$$arch" ;; esac; \
	version=$$($(MAKE_RELEASE) version -version "$$VERSION") || exit 1; \
	$$DOCKER build --platform "$$platforms" "$$@" --build-arg "VERSION=$$version" \
		-t "$$IMAGE" -f deploy/Dockerfile bin

archive: ## write an image to bin/podcount-image.tar, without docker; PLATFORMS and VERSION are options
	@$(MAKE_RELEASE) image -version "$$VERSION" -fips "$$GOFIPS140" \
		-platforms "$${PLATFORMS:-linux/$$(go env GOARCH)}" -o bin/podcount-image.tar

release: ## write bin/podcount-v1.1.0.tar, with all that a site needs: make release VERSION=v1.1.0 [KEY=FILE]
	@$(MAKE_RELEASE) all -version "$$VERSION" -fips "$$GOFIPS140" -platforms "$$PLATFORMS" -key "$$KEY"

verify: ## build a release again, and compare all bytes: make verify RELEASE=podcount-v1.1.0.tar
	@$(MAKE_RELEASE) verify "$$RELEASE"

run: build ## run podcount against a fake API server, without a cluster; ARGS='-v 4' shows more
	@echo compiling the playground
	@go build -o bin/playground ./lab/playground
	@set -f; exec bin/playground bin/podcount bin $$ARGS

site: ## write podcount for a tab of a browser to bin/site, as static files; SERVE=127.0.0.1:8080 also serves them
	@version=$$($(MAKE_RELEASE) version -version "$$VERSION") || exit 1; \
	export GOOS= GOARCH= GOFLAGS= GOWORK=off; \
	go build -o bin/make-site ./lab/site && exec bin/make-site -serve "$$SERVE" -version "$$version" bin/site

# The program behind these is built and not run by `go run`, which has only the exit codes 0 and 1.
override COURSE := go build -o bin/course ./lab/course/command && exec bin/course -stage "$$STAGE"

learn: ## build your own controller, in twelve stages: says where you stand; STAGE=5 goes to a stage, FRESH=yes begins it with our program
	@$(COURSE) -fresh "$$FRESH" learn

check: ## try your controller: STAGE=5 for another stage, PROGRAM='python3 mine.py' for another language, ONLY='list cut' for one row
	@$(COURSE) -program "$$PROGRAM" -only "$$ONLY" check

hint: ## get a hint for the stage at which you stand
	@$(COURSE) hint

answer: ## see what the finished stage changes
	@$(COURSE) answer

bug: ## hunt a bug: LEVEL=hard or BUG=7 chooses one, ANSWER=Queue.Get answers, HINT=yes helps, ANSWER=none gives up
	@mkdir -p bin
	@go build -o bin/hunt ./lab/hunt/command
	@exec bin/hunt -level "$$LEVEL" -bug "$$BUG" -answer "$$ANSWER" -hint "$$HINT"

test: ## run all tests, without a network and without a C compiler
	go test -count=1 ./...

trial: $(if $(value PROGRAM),,build) ## put podcount on trial, or PROGRAM='./mine --kubeconfig $$KUBECONFIG': what does it survive? ELECTS=yes HOURS=yes ONLY='watch,list' JSON=FILE HTML=FILE KUBECONFIG=FILE are options
	@go run ./lab/trial/command -only "$$ONLY" -elects="$${ELECTS:-no}" -hours="$${HOURS:-no}" -json "$$JSON" -html "$$HTML" \
		$(if $(filter override,$(origin KUBECONFIG)),-cluster "$$KUBECONFIG" -context "$$CONTEXT") "$$PROGRAM"

sim: ## simulate clusters and faults: SEEDS=1000 runs the seeds 1 to 1000, and SEEDS=17-17 runs seed 17; ONLY=3,8 runs only these steps; TRACE=FILE.html replays one seed
	@[ -n "$$SEEDS" ] || { echo 'use: make sim SEEDS=COUNT, or make sim SEEDS=FIRST-LAST'; exit 2; }
	go test -count=1 -timeout 0 -run '^TestSimulation$$'

sweep: ## let each request fail in each way: all of them, or with CASE='list pods' those whose name contains that
	CASE="$${CASE:-all}" go test -count=1 -timeout 0 -run '^TestSweep$$'

mutants: ## break podcount on purpose, and check that a test fails: in each way, or with ONLY='NAME NAME' in these
	@set -f; go run ./lab/mutants/command $$ONLY

e2e: ## run the behaviours on a real cluster: make e2e KUBECONFIG=FILE [CONTEXT=NAME]
	@[ '$(origin KUBECONFIG)' = override ] && [ -n "$$KUBECONFIG" ] || { \
		echo 'use: make e2e KUBECONFIG=FILE'; \
		echo 'It creates nodes, roles, policies and a CRD in that cluster, and deletes them at the end.'; \
		exit 2; \
	}
	PODCOUNT_E2E=1 go test -count=1 -v -timeout 30m -parallel 16 -run 'OnARealCluster$$' .

airgap: ## install a release without a network: make airgap RELEASE=FILE [SIGNERS=FILE] [KUBECONFIG=FILE [CONTEXT=NAME]]
	@[ -n "$$RELEASE" ] && [ "$$(go env GOOS)" = linux ] || { \
		echo 'use, on Linux: make airgap RELEASE=FILE [SIGNERS=FILE] [KUBECONFIG=FILE [CONTEXT=NAME]]'; \
		echo 'With KUBECONFIG, it installs podcount in that cluster for a minute, and creates two nodes and some pods.'; \
		exit 2; \
	}
	AIRGAP_RELEASE="$$RELEASE" AIRGAP_SIGNERS="$$SIGNERS" \
		AIRGAP_KUBECONFIG=$(if $(filter override,$(origin KUBECONFIG)),"$$KUBECONFIG") \
		go test -count=1 -v -timeout 30m -run '^TestReleaseNeedsNoNetwork$$' ./lab/airgap

fuzz: ## give each parser random input for FUZZTIME
	@for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime "$$FUZZTIME" -fuzzminimizetime 20x $$package || exit 1; \
		done; \
	done

bench: ## run the benchmarks, which takes about two minutes
	go test -run '^$$' -bench . -benchtime 300ms ./...

lint: ## run stricter checks than the tests: .ci/run runs both
	bash .ci/lint

clean: ## delete bin/
	rm -rf bin
