package options

import (
	"errors"
	"fmt"
	"strconv"
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

// wholeNumber is the value of a flag. Unlike flag.IntVar, its errors explain what to write.
type wholeNumber int

func (n *wholeNumber) String() string { return strconv.Itoa(int(*n)) }

func (n *wholeNumber) Set(text string) error {
	parsed, err := strconv.ParseInt(text, 0, strconv.IntSize)
	if err != nil {
		return numberError(err, "a whole number")
	}
	*n = wholeNumber(parsed)
	return nil
}

// number is the value of a flag. Unlike flag.Float64Var, its errors explain what to write.
type number float64

func (n *number) String() string { return strconv.FormatFloat(float64(*n), 'g', -1, 64) }

func (n *number) Set(text string) error {
	parsed, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return numberError(err, "a number")
	}
	*n = number(parsed)
	return nil
}

// numberError returns the error for a text that package strconv does not accept. want is what the text must be.
func numberError(err error, want string) error {
	if errors.Is(err, strconv.ErrRange) {
		return errors.New("the number is out of range")
	}
	return errors.New("must be " + want)
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
