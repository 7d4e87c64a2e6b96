package options

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// duration is the value of a flag. Unlike flag.DurationVar, its errors explain what to write.
type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }

func (d *duration) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	isNumber := text != "" && strings.Trim(text, "0123456789") == ""
	if err != nil && isNumber {
		return fmt.Errorf("it has no unit: write %ss for seconds, %[1]sm for minutes", text)
	}
	if err != nil {
		return errors.New("write a number and its unit, as in 500ms, 10s or 5m")
	}
	*d = duration(parsed)
	return nil
}

// onOff is the value of a flag that is on or off.
type onOff bool

func (v *onOff) String() string {
	if *v {
		return "on"
	}
	return "off"
}

func (v *onOff) Set(text string) error {
	switch text {
	case "on":
		*v = true
	case "off":
		*v = false
	default:
		return errors.New("use on or off")
	}
	return nil
}
