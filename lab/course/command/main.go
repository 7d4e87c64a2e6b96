// Command is the program behind `make learn`, `make check`, `make hint` and `make answer`, as package course explains.
// It runs in the root of a checkout.
//
//	command [-stage NUMBER] [-fresh yes] [-program LINE] [-only ROW] learn|check|hint|answer
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"podcount/lab/course"
)

func main() {
	c := course.Call{Root: ".", Out: os.Stdout}
	flag.StringVar(&c.Stage, "stage", "", "the `number` of a stage, in place of the present one")
	flag.StringVar(&c.Program, "program", "", "a `line` for a shell that starts the program, in place of learn/mine")
	flag.StringVar(&c.Only, "only", "", "check only the rows whose `name` contains this")
	flag.StringVar(&c.Fresh, "fresh", "", "`yes` begins the stage with the finished one before")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "use: make learn [STAGE=N] [FRESH=yes], make check [STAGE=N] [PROGRAM=LINE] [ONLY=ROW], "+
			"make hint [STAGE=N] or make answer [STAGE=N]")
		os.Exit(2)
	}
	c.Command = flag.Arg(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := course.Run(ctx, c)
	if ctx.Err() != nil {
		code = 1
	}
	stop()
	os.Exit(code)
}
