// Package sim simulates a cluster's life in virtual time: pods, nodes and custom resources come, move and go, while
// anything that can fail does. A program runs in it, in one process or several, on a network of its own, and is held
// against rules: each request as it comes, what each process says of its watches against what the server has told it,
// and in between, once all faults have stopped, everything against the truth. The same seed brings the same life and the
// same faults; what the program does with them is up to its own dice and the scheduler's.
//
// It knows of the program nothing but its flags, a few lines of its log, and the bounds in Options. It imports the fake
// API server alone.
package sim
