// Package sim simulates a cluster in virtual time. Pods, nodes and custom resources come, move and go, and everything
// that can fail does fail. The program runs there as one process or several, each on a network of its own.
//
// The simulation checks the program against rules. It checks each request when it arrives, and each process's log of
// its watches against the events that the server has sent. From time to time all faults stop, and then all labels and
// statuses must become right.
//
// # What a seed brings
//
// First, a seed chooses the program's flags (flags.go), the number of processes, and which faults strike how often.
// Then it chooses what happens next: something from the cluster's life (life.go), or a fault (faults.go,
// requestfaults.go). After a while all faults stop. Everything must be right within a bound, which Options explains,
// and after that nothing may be written any more (oracle.go). That is repeated for two hours, and with each 50th seed
// for a whole day.
//
// Two sets of rules hold all the time: those for requests (checks.go), which depend on what each process knows
// (knowledge.go), and those for the logs of the processes (heard.go).
//
// The same seed always brings the same life and the same faults. The program's own random numbers and the scheduler
// are not under its control, so that a seed that has failed may pass the next time.
//
// # How to run it
//
// A test passes RunSeeds its program and the seeds:
//
//	options := sim.Options{Program: run, TotalLabel: "example.com/pods"} // and all other options
//	sim.RunSeeds(t, options, sim.Seeds{First: 1, Last: 100})
//
// If a rule is broken, the test reports the rule, what led to it, and how to run that seed once more.
//
// # What it knows about the program
//
// The package knows the rules of podcount, and of no other program: what podcount counts, which labels and statuses
// must show it, and that podcount must list all pods before it writes. It also knows podcount's flags, and the few
// lines of its log that heard.go reads. It does not know podcount's code. The program comes as a function, and
// everything that may differ between two builds comes in Options.
//
// It imports only the fake API server and the standard library. It never waits in real time, opens no connection
// outside the process, and never changes what a program does.
package sim
