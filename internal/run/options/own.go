package options

import "time"

// Flag is a flag of a controller of your own. Register it at package level, in the file of that controller:
//
//	var crowdedLimit = options.NewFlag("crowded-limit", 100, "N", "warn of nodes with more than N pods")
//
// and read it with crowdedLimit.Of(p.options).
type Flag[T any] struct{ name string }

// ownFlags are functions that define the registered flags, in the order of their registration.
var ownFlags []func(c *commandLine)

// Of returns the value of the flag on the command line from which Parse made o.
func (f Flag[T]) Of(o *Options) T { return *o.own[f.name].(*T) }

// NewFlag registers a flag. The help shows argument as the name of the value; a bool has none. Call NewFlag before
// main: at package level, or in an init function.
func NewFlag[T int | string | time.Duration | bool](name string, defaultValue T, argument, about string) Flag[T] {
	ownFlags = append(ownFlags, func(c *commandLine) {
		value := defaultValue // Each call of Parse has its own value of the flag.
		c.define(&value, name, argument, about)
		c.own[name] = &value
	})
	return Flag[T]{name}
}

// defineOwn defines the flags of your own controllers.
func (c *commandLine) defineOwn() {
	if len(ownFlags) > 0 {
		c.beginSection("Of your own controllers")
	}
	for _, define := range ownFlags {
		define(c)
	}
}
