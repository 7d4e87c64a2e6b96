// Package sim simulates a cluster's life in virtual time: pods, nodes and custom resources come, move and go, while
// anything that can fail does. A program runs in it, in one process or several, on a network of its own, and is held
// against rules: each request as it comes, what each process says of its watches against what the server has told it,
// and in between, once all faults have stopped, everything against the truth.
//
// # What a seed brings
//
// A seed chooses the program's flags (flags.go), how many processes run, which of all faults there are and how often
// they strike. From then on it chooses what happens next: something of the cluster's life (life.go), or a fault
// (faults.go, requestfaults.go). After a while, all faults stop. Within a bound, which Options explains, all must be
// right, and then nothing may be written any more (oracle.go). That comes again and again for two hours, with each 50th
// seed for a whole day. The rules for requests (checks.go, by what each process knows: knowledge.go) and for what
// processes have heard (heard.go) hold throughout.
//
// The same seed brings the same life and the same faults. What the program does with them is up to its own dice and
// the scheduler's, so that a seed that has failed need not fail again at once.
//
// # How to run it
//
// A test passes RunSeeds its program and the seeds:
//
//	options := sim.Options{Program: run, TotalLabel: "example.com/pods"} // and all the others
//	sim.RunSeeds(t, options, sim.Seeds{First: 1, Last: 100})
//
// Where a rule is broken, the test says which, tells what led there, and says how to run that seed once more.
//
// # What it knows of the program
//
// The package is the oracle of podcount's rules, and of no other program's. It knows what podcount counts, and which
// labels and statuses must show it; that pods must be listed before anything is written; podcount's flags; and the few
// lines of podcount's log that heard.go reads. It does not know podcount's code: the program comes as a function, and
// what may differ between two builds comes in Options.
//
// It imports the fake API server and the standard library alone. It waits for nothing in real time, opens no connection
// outside the process, and never changes what a program does to make it pass.
package sim
