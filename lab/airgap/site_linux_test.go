package airgap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
)

// site is a place without a network, to which a release was carried.
type site struct {
	root        string          // the directory that is the root of the site
	release     string          // such as podcount-v1.1.0
	cluster     *cluster        // nil if there is none
	interrupted context.Context // ends when the user interrupts the test

	// The users and groups that exist there.
	users, groups []syscall.SysProcIDMap
}

// cluster is the API server that the site can reach. The site uses the same address as everybody else.
type cluster struct {
	host, port string
}

// The paths at the site.
const (
	carried   = "/carried"        // holds what was carried there, and nothing else
	steps     = "/steps"          // holds the scripts
	apiSocket = "/apiserver.sock" // leads to the API server
)

// home is the home of the person at the site, within the site's own root.
const home = "/person"

// furnish fills the root with what was carried there, the scripts, and the tools that a site has already: those of a
// node with containerd, and those of whoever administers it.
func (s *site) furnish(release, signers string) error {
	for _, dir := range []string{carried, home + "/.kube", "/etc", "/bin", "/dev", "/proc", "/sys", "/run", "/tmp"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := s.copyIn(release, carried+"/"+s.release+".tar"); err != nil {
		return fmt.Errorf("RELEASE: %w", err)
	}
	if signers != "" {
		if err := s.copyIn(release+".sig", carried+"/"+s.release+".tar.sig"); err != nil {
			return fmt.Errorf("the signature of RELEASE: %w", err)
		}
		if err := s.copyIn(signers, carried+"/allowed_signers"); err != nil {
			return fmt.Errorf("SIGNERS: %w", err)
		}
	}
	if err := os.CopyFS(s.path(steps), os.DirFS("testdata/steps")); err != nil {
		return err
	}
	etc := map[string]string{
		"passwd":      "root:x:0:0:root:" + home + ":/bin/sh\n",
		"hosts":       "127.0.0.1 localhost\n",
		"resolv.conf": "",
	}
	for name, content := range etc {
		if err := os.WriteFile(s.path("/etc/"+name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return s.copyTools("busybox", "ssh-keygen", "containerd", "containerd-shim-runc-v2", "ctr", "runc")
}

// path returns the path, outside the site, of a file at the site.
func (s *site) path(file string) string { return filepath.Join(s.root, file) }

// connect lets the site reach the API server of a kubeconfig, and nothing else.
func (s *site) connect(kubeconfigFile, contextName string) error {
	if err := s.copyTools("kubectl"); err != nil {
		return err
	}
	kubeconfig, err := flatten(kubeconfigFile, contextName)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path(home+"/.kube/config"), kubeconfig, 0o600); err != nil {
		return err
	}
	server, err := serverIn(kubeconfig)
	if err != nil {
		return err
	}
	s.cluster = &cluster{host: server.Hostname(), port: server.Port()}
	if s.cluster.port == "" {
		s.cluster.port = "443"
	}
	return s.openWayOut()
}

// openWayOut lets the site reach the API server by a Unix socket.
func (s *site) openWayOut() error {
	dial := func() (net.Conn, error) { return net.Dial("tcp", net.JoinHostPort(s.cluster.host, s.cluster.port)) }
	probe, err := dial()
	if err != nil {
		return fmt.Errorf("the API server cannot be reached from here: %w", err)
	}
	probe.Close()
	listener, err := net.Listen("unix", s.path(apiSocket))
	if err != nil {
		return err
	}
	go forward(listener, dial)
	return nil
}

// flatten returns a kubeconfig, in JSON, that has one context and needs no other file.
func flatten(kubeconfigFile, contextName string) ([]byte, error) {
	args := []string{"config", "view", "--kubeconfig", kubeconfigFile, "--raw", "--flatten", "--minify", "-o", "json"}
	if contextName != "" {
		args = append(args, "--context", contextName)
	}
	kubeconfig, err := exec.Command("kubectl", args...).Output()
	var failure *exec.ExitError
	if errors.As(err, &failure) {
		return nil, fmt.Errorf("KUBECONFIG: %s", failure.Stderr)
	}
	return kubeconfig, err
}

// serverIn returns the address of the only server in a kubeconfig.
func serverIn(kubeconfig []byte) (*url.URL, error) {
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     string `json:"certificate-authority-data"`
				Proxy  string `json:"proxy-url"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := json.Unmarshal(kubeconfig, &config); err != nil {
		return nil, fmt.Errorf("KUBECONFIG: %w", err)
	}
	if len(config.Clusters) != 1 {
		return nil, fmt.Errorf("KUBECONFIG: it has %d clusters: use CONTEXT=NAME to choose one", len(config.Clusters))
	}
	c := config.Clusters[0].Cluster
	if c.CA == "" || c.Proxy != "" {
		return nil, fmt.Errorf("KUBECONFIG: the server %s needs a certificate-authority, and no proxy", c.Server)
	}
	return url.Parse(c.Server)
}

// copyTools copies programs from this machine to /bin of the site, with the libraries that they load.
func (s *site) copyTools(names ...string) error {
	for _, name := range names {
		program, err := lookUp(name)
		if err != nil {
			return fmt.Errorf("%w; Debian's packages busybox-static, containerd, runc and openssh-client have all "+
				"tools but kubectl", err)
		}
		if err := s.copyIn(program, "/bin/"+name); err != nil {
			return err
		}
		for _, library := range librariesOf(program) {
			if err := s.copyIn(library, library); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookUp finds a program in the PATH, or where the programs of root are.
func lookUp(name string) (string, error) {
	program, err := exec.LookPath(name)
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/" + name)
	}
	return program, err
}

// librariesOf returns the paths of the libraries that a program loads. A static program has none.
func librariesOf(program string) []string {
	output, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil
	}
	var libraries []string
	for _, found := range regexp.MustCompile(`(/\S+) \(`).FindAllStringSubmatch(string(output), -1) {
		libraries = append(libraries, found[1])
	}
	return libraries
}

// copyIn copies a file of this machine to the site.
func (s *site) copyIn(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := os.MkdirAll(filepath.Dir(s.path(to)), 0o755); err != nil {
		return err
	}
	target, err := os.OpenFile(s.path(to), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// forward connects each connection that a listener accepts to one of dial.
func forward(listener net.Listener, dial func() (net.Conn, error)) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			to, err := dial()
			if err != nil {
				fmt.Fprintln(os.Stderr, "airgap:", err)
				return
			}
			defer to.Close()
			go func() {
				io.Copy(to, from)
				to.Close()
			}()
			io.Copy(from, to)
		}()
	}
}
