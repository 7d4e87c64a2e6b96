//go:build ignore

// gunzip decompresses a file, and prints the seconds of processor time that it took. The program measure uses it to
// tell how much of a list's time is decompression alone.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"os"
	"syscall"
	"time"
)

func main() {
	compressed, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	before := processorTime()
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, reader); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.2f\n", (processorTime() - before).Seconds())
}

// processorTime returns how long this process has run on processors.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
