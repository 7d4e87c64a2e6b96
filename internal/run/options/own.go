package options

import "time"

// Flag is a flag of a controller of your own. Register it at package level, in the file of that controller:
//
//	var crowdedLimit = options.Int("crowded-limit", 100, "N", "warn of nodes with more than N pods")
//
// and read it with crowdedLimit.Of(m.options).
type Flag[T any] struct {
	name         string
	defaultValue T
}

// ownFlags are functions that define the registered flags, in the order of their registration.
var ownFlags []func(c *commandLine)

// Of returns the value of the flag on the command line from which Parse made o. It returns the default if o was not
// made by Parse.
func (f Flag[T]) Of(o *Options) T {
	value, isParsed := o.own[f.name].(*T)
	if !isParsed {
		return f.defaultValue
	}
	return *value
}

// Int registers a flag for a whole number. The help shows argument as the name of the value.
//
// Call Int, String, Duration and Bool before main: at package level, or in an init function.
func Int(name string, defaultValue int, argument, about string) Flag[int] {
	return register(name, defaultValue, func(c *commandLine, value *int) {
		c.intFlag(value, name, argument, about)
	})
}

// String registers a flag for a text.
func String(name, defaultValue, argument, about string) Flag[string] {
	return register(name, defaultValue, func(c *commandLine, value *string) {
		c.stringFlag(value, name, argument, about)
	})
}

// Duration registers a flag for a duration, such as 10s.
func Duration(name string, defaultValue time.Duration, argument, about string) Flag[time.Duration] {
	return register(name, defaultValue, func(c *commandLine, value *time.Duration) {
		c.durationFlag(value, name, argument, about)
	})
}

// Bool registers a flag that has no argument. It is false by default.
func Bool(name, about string) Flag[bool] {
	return register(name, false, func(c *commandLine, value *bool) {
		c.boolFlag(value, name, about)
	})
}

// register adds a flag to ownFlags. Each call of Parse has its own value of the flag.
func register[T any](name string, defaultValue T, define func(c *commandLine, value *T)) Flag[T] {
	ownFlags = append(ownFlags, func(c *commandLine) {
		value := new(T)
		*value = defaultValue
		define(c, value)
		c.own[name] = value
	})
	return Flag[T]{name, defaultValue}
}

// defineOwn defines the flags of your own controllers.
func (c *commandLine) defineOwn() {
	if len(ownFlags) == 0 {
		return
	}
	c.beginSection("Of your own controllers")
	for _, define := range ownFlags {
		define(c)
	}
}
