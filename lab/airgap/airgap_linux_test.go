package airgap

// airgap_linux_test.go carries a release to a site without a network. The site is an empty root directory in namespaces
// of its own. Its only way out is a Unix socket, which leads to one API server. The steps at the site are the shell
// scripts in testdata/steps. site_linux_test.go furnishes the site, and step_linux_test.go runs there.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if root := os.Getenv(rootVariable); root != "" {
		os.Exit(runStep(root, os.Getenv(stepVariable)))
	}
	os.Exit(m.Run())
}

// TestReleaseNeedsNoNetwork is what `make airgap` runs.
func TestReleaseNeedsNoNetwork(t *testing.T) {
	s := newSite(t)
	s.mustDo(t, "network")
	s.mustDo(t, "verify")
	s.mustDo(t, "load")
	if s.cluster == nil {
		t.Log("podcount was not installed, because there is no KUBECONFIG")
		return
	}
	s.mustDo(t, "vacant")
	t.Cleanup(func() { s.do(t, context.Background(), "remove") })
	s.mustDo(t, "install")
	s.mustDo(t, "count")
}

// stepTimeout is for one step. The slowest one waits for podcount several times.
const stepTimeout = 3 * time.Minute

// mustDo does a step as a subtest, and ends the test if it fails or is interrupted.
func (s *site) mustDo(t *testing.T, step string) {
	t.Helper()
	passed := t.Run(step, func(t *testing.T) { s.do(t, s.interrupted, step) })
	if !passed {
		t.FailNow()
	}
}

// do runs the script of a step at the site.
func (s *site) do(t *testing.T, ctx context.Context, step string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	start := time.Now()
	output, err := s.command(ctx, step).CombinedOutput()
	t.Logf("%s, in %.1f s:\n%s", step, time.Since(start).Seconds(), output)
	if err != nil {
		t.Errorf("the step %s failed: %v", step, err)
	}
}

// command returns a process of this test binary that is the first one in new namespaces, and so has no network. Its
// process group is its own, so that a Ctrl-C reaches the test alone.
func (s *site) command(ctx context.Context, step string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(s.environment(), rootVariable+"="+s.root, stepVariable+"="+step)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWCGROUP,
		UidMappings:                s.users,
		GidMappings:                s.groups,
		GidMappingsEnableSetgroups: true,
		Pdeathsig:                  syscall.SIGKILL,
		Setpgid:                    true,
	}
	return cmd
}

// environment returns the variables that the scripts read.
func (s *site) environment() []string {
	variables := []string{
		"PATH=/bin",
		"HOME=" + home,
		"CONTAINERD_SNAPSHOTTER=native", // needs no support by the kernel
		"RELEASE=" + s.release,
		"VERSION=" + strings.TrimPrefix(s.release, "podcount-"),
	}
	if s.cluster != nil {
		variables = append(variables, "API_HOST="+s.cluster.host, "API_PORT="+s.cluster.port)
	}
	return variables
}

// newSite furnishes a site for the release, the keys and the cluster that the environment names.
func newSite(t *testing.T) *site {
	t.Helper()
	release := os.Getenv("AIRGAP_RELEASE")
	if release == "" {
		t.Skip("needs a release: make airgap RELEASE=FILE")
	}
	mustBeRoot(t)
	// The path of a socket has at most 107 characters, which t.TempDir can exceed.
	root, err := os.MkdirTemp("", "airgap")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	s := &site{
		root:        root,
		users:       idsOf(t, "/proc/self/uid_map"),
		groups:      idsOf(t, "/proc/self/gid_map"),
		release:     strings.TrimSuffix(filepath.Base(release), ".tar"),
		interrupted: ctx,
	}
	err = s.furnish(fromTop(release), fromTop(os.Getenv("AIRGAP_SIGNERS")))
	kubeconfig := os.Getenv("AIRGAP_KUBECONFIG")
	if err == nil && kubeconfig != "" {
		err = s.connect(fromTop(kubeconfig), os.Getenv("CONTEXT"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fromTop returns a path that was given in the top folder, as it is from here. "" stays "".
func fromTop(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join("..", "..", path)
}

// mustBeRoot ends the test unless this process can be podcount's user, too.
func mustBeRoot(t *testing.T) {
	t.Helper()
	var count int
	for _, ids := range idsOf(t, "/proc/self/uid_map") {
		count += ids.Size
	}
	if os.Geteuid() != 0 || count <= podcountUser {
		t.Fatal("this user cannot run a process as podcount's user: run it as root, or as root of a user namespace, " +
			"as in podman unshare make airgap RELEASE=FILE")
	}
}

// idsOf reads which users or groups this process can be. The site has the same ones, under the same numbers.
func idsOf(t *testing.T, file string) (ids []syscall.SysProcIDMap) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var count int64
	for line := range strings.Lines(string(content)) {
		var first, outside, size int64
		if _, err := fmt.Sscan(line, &first, &outside, &size); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		size = min(size, maxIDs-count)
		ids = append(ids, syscall.SysProcIDMap{ContainerID: int(first), HostID: int(first), Size: int(size)})
		count += size
	}
	return ids
}

// maxIDs is how many users the site has. If it had all, containerd and runc would not see that they are in a user
// namespace.
const maxIDs = 65536

// podcountUser is the user of the image.
const podcountUser = 65532
