//go:build !js

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// writeOwnKubeconfig writes a kubeconfig to a file that no other playground uses, and returns its name. That is
// playground.kubeconfig, or playground-2.kubeconfig and so on if the servers of the files before still answer.
func writeOwnKubeconfig(dir string, text []byte) (file string, err error) {
	// Without the lock, two playgrounds that start together might choose the same name.
	lock, err := os.OpenFile(filepath.Join(dir, ".playground.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		file = filepath.Join(dir, "playground.kubeconfig")
		if n > 1 {
			file = filepath.Join(dir, fmt.Sprintf("playground-%d.kubeconfig", n))
		}
		other, err := os.ReadFile(file)
		if err == nil && serverAnswers(string(other)) {
			continue
		}
		return file, os.WriteFile(file, text, 0o600)
	}
}

// serverAnswers reports whether a kubeconfig's server accepts connections.
func serverAnswers(kubeconfig string) bool {
	_, server, _ := strings.Cut(kubeconfig, `"server": "https://`)
	server, _, _ = strings.Cut(server, `"`)
	conn, err := net.DialTimeout("tcp", server, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
