package options

import "time"

// Flag is a flag of a controller of your own. Register it at package level, in the file of that controller:
//
//	var crowdedLimit = options.Int("crowded-limit", 100, "N", "warn of nodes with more than N pods")
//
// and read it with crowdedLimit.Of(m.options).
type Flag[T any] struct {
	name      string
	byDefault T
}

// ownFlags define the flags that were registered, in this order. They are complete before main begins.
var ownFlags []func(c *commandLine)

// Of returns the value of the flag on this command line. Options that Parse has not made have the default.
func (f Flag[T]) Of(o *Options) T {
	value, isParsed := o.own[f.name].(*T)
	if !isParsed {
		return f.byDefault
	}
	return *value
}

// Int registers a flag for a whole number. The help shows argument as the name of the value.
// It must be called before main, at package level or in an init function, as all functions here that register a flag.
func Int(name string, byDefault int, argument, about string) Flag[int] {
	return register(name, byDefault, func(c *commandLine, value *int) {
		c.integer(value, name, argument, about)
	})
}

// String registers a flag for a text.
func String(name, byDefault, argument, about string) Flag[string] {
	return register(name, byDefault, func(c *commandLine, value *string) {
		c.text(value, name, argument, about)
	})
}

// Duration registers a flag for a duration, such as 10s.
func Duration(name string, byDefault time.Duration, argument, about string) Flag[time.Duration] {
	return register(name, byDefault, func(c *commandLine, value *time.Duration) {
		c.duration(value, name, argument, about)
	})
}

// Bool registers a flag that has no argument. It is false by default.
func Bool(name, about string) Flag[bool] {
	return register(name, false, func(c *commandLine, value *bool) {
		c.boolean(value, name, about)
	})
}

// register notes how to define a flag. Each Parse gives it a value of its own, so that two do not share one.
func register[T any](name string, byDefault T, define func(c *commandLine, value *T)) Flag[T] {
	ownFlags = append(ownFlags, func(c *commandLine) {
		value := new(T)
		*value = byDefault
		define(c, value)
		c.own[name] = value
	})
	return Flag[T]{name, byDefault}
}

// defineOwn defines the flags of your own controllers.
func (c *commandLine) defineOwn() {
	if len(ownFlags) == 0 {
		return
	}
	c.section("Of your own controllers")
	for _, define := range ownFlags {
		define(c)
	}
}
