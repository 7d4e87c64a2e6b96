package fakekube

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Script parses one fault per line and injects each as Inject does. It returns the injections in the order of the
// lines. A syntax error ends the test with a message that names the line and the column.
//
//	fake.Script(t, `
//		list pods: cut after 300 bytes
//		patch nodes worker-1 by alice, skip 2, 3 times: delay 2s, refuse 503 retry-after 5s
//		write pods/status in default, always: drop answer
//	`)
//
// A line selects requests, says how many of them meet the fault, and names the effect:
//
//	fault    = requests { "," count } ":" effects
//	requests = verb [ resource [ name ] ] [ "in" namespace ] [ "by" user ] [ "at" host ]
//	count    = "skip" N | "every" Nth | "at" "rate" R | "seed" N | N "times" | "once" | "always"
//	effects  = "delay" duration | effect | "delay" duration "," effect
//	effect   = "refuse" code [ "reason" word ] [ "message" word ] [ "retry-after" duration ]
//	         | "reply" code { "header" name value } [ "body" word ]
//	         | "cut" "after" N "bytes" | "hang" "after" N "bytes" | "truncate"
//	         | "cut" "after" "frame" N [ "plus" N "bytes" | "minus" N "bytes" ]
//	         | "drop" "request" | "drop" "answer" | "stall"
//	         | "reset" "before" "acting" | "reset" "after" "acting"
//	         | "lie" "about" N "changes"
//
// The words correspond to the fields of Fault, Requests and the effects. "*" is any verb or resource. The verb "relist"
// is a list, or a watch that begins with all objects, as Requests.Verb says. A word must be quoted as in Go if it
// contains blanks, ends with a comma or a colon, or is "in", "by" or "at". "#" starts a comment.
func (s *Server) Script(t TB, text string) []*Injection {
	t.Helper()
	var injections []*Injection
	for i, line := range strings.Split(text, "\n") {
		ft, err := parseLine(line)
		if err != nil {
			t.Fatalf("line %d, %v", i+1, err)
		}
		if ft != nil {
			injections = append(injections, s.Inject(t, *ft))
		}
	}
	return injections
}

// ParseFault parses one fault in the text form of Script. Its error names the column.
func ParseFault(text string) (Fault, error) {
	ft, err := parseLine(text)
	if err != nil {
		return Fault{}, err
	}
	if ft == nil {
		return Fault{}, fmt.Errorf("column 1: there is no fault, such as %q", "list pods: refuse 503")
	}
	return *ft, nil
}

// parseLine parses one line. It returns nil for an empty line.
func parseLine(line string) (ft *Fault, err error) {
	p := &scriptParser{}
	if err := p.split(line); err != nil {
		return nil, err
	}
	if len(p.tokens) == 1 {
		return nil, nil
	}
	defer func() {
		problem, isProblem := recover().(scriptProblem)
		if isProblem {
			ft = nil
			err = problem
		}
	}()
	parsed := p.fault()
	if problem := parsed.problem(); problem != "" {
		return nil, scriptProblem{1, problem}
	}
	return &parsed, nil
}

// token is a word, a comma, a colon, or the end of the line, which has no text.
type token struct {
	text     string
	column   int
	isQuoted bool
	isEnd    bool // ends a part: a comma, a colon, or the end of the line
}

// scriptProblem is a syntax error in a line.
type scriptProblem struct {
	column int
	what   string
}

func (p scriptProblem) Error() string { return fmt.Sprintf("column %d: %s", p.column, p.what) }

// scriptParser parses the tokens of a line. Its methods panic with a scriptProblem, which parseLine recovers.
type scriptParser struct {
	tokens []token // not yet consumed; the last one is the end of the line
}

// split splits a line into tokens.
func (p *scriptParser) split(line string) error {
	rest := strings.TrimLeft(line, " \t")
	for rest != "" && rest[0] != '#' {
		next, length, err := firstToken(rest)
		next.column = len(line) - len(rest) + 1
		if err != nil {
			return scriptProblem{next.column, err.Error()}
		}
		p.tokens = append(p.tokens, next)
		rest = strings.TrimLeft(rest[length:], " \t")
	}
	p.tokens = append(p.tokens, token{column: len(line) + 1, isEnd: true})
	return nil
}

// firstToken returns the token at the beginning of a text, without its column, and how many bytes it takes there.
func firstToken(text string) (t token, length int, err error) {
	if text[0] == '"' {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return token{}, 0, errors.New("a quoted text does not end, or has an escape that Go does not know")
		}
		unquoted, err := strconv.Unquote(quoted)
		return token{text: unquoted, isQuoted: true}, len(quoted), err
	}
	end := strings.IndexAny(text+" ", " \t")
	word := strings.TrimRight(text[:end], ",:")
	if word == "" {
		return token{text: text[:1], isEnd: true}, 1, nil
	}
	return token{text: word}, len(word), nil
}

// fail panics with a scriptProblem that names the column of the next token.
func (p *scriptParser) fail(format string, args ...any) {
	panic(scriptProblem{p.tokens[0].column, fmt.Sprintf(format, args...)})
}

// shown describes the next token for a message.
func (p *scriptParser) shown() string {
	if p.tokens[0].text == "" && !p.tokens[0].isQuoted {
		return "the line ends"
	}
	return fmt.Sprintf("there is %q", p.tokens[0].text)
}

// accept consumes the next token if it is this keyword or separator, and reports whether it is.
func (p *scriptParser) accept(text string) bool {
	if p.tokens[0].text != text || p.tokens[0].isQuoted || len(p.tokens) == 1 {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

// expect consumes the next token, which must be one of these words, and returns it.
func (p *scriptParser) expect(wanted ...string) string {
	for _, text := range wanted {
		if p.accept(text) {
			return text
		}
	}
	p.fail("%s, not %s", p.shown(), strings.Join(wanted, " or "))
	return ""
}

// word consumes and returns any word. wanted describes the expected word in the error message.
func (p *scriptParser) word(wanted string) string {
	if p.tokens[0].isEnd {
		p.fail("%s, not %s", p.shown(), wanted)
	}
	text := p.tokens[0].text
	p.tokens = p.tokens[1:]
	return text
}

// number consumes a number without a sign.
func (p *scriptParser) number(wanted string) int {
	n, err := strconv.ParseUint(p.tokens[0].text, 10, 31)
	if err != nil {
		p.fail("%s, not %s", p.shown(), wanted)
	}
	p.word(wanted)
	return int(n)
}

// ordinal consumes a number such as 3 or 3rd.
func (p *scriptParser) ordinal() int {
	const what = "which of them, such as 3rd"
	digits := strings.TrimRight(p.tokens[0].text, "stndrh")
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		p.fail("%s, not %s", p.shown(), what)
	}
	p.word(what)
	return int(n)
}

func (p *scriptParser) duration() time.Duration {
	d, err := time.ParseDuration(p.tokens[0].text)
	if err != nil || d < 0 {
		p.fail("%s, not a duration such as 2s or 1m30s", p.shown())
	}
	p.word("a duration")
	return d
}

func (p *scriptParser) fault() Fault {
	ft := Fault{On: p.requests()}
	seen := map[string]bool{}
	for p.accept(",") {
		count := p.nextCount()
		if seen[count] {
			p.fail("%s, which says %s a second time", p.shown(), count)
		}
		seen[count] = true
		p.count(&ft)
	}
	p.expect(":", ",")
	if p.accept("delay") {
		ft.Delay = p.duration()
		if p.accept(",") {
			ft.Do = p.effect()
		}
	} else {
		ft.Do = p.effect()
	}
	if len(p.tokens) > 1 {
		p.fail("%s after the effect: a fault has one, and a delay before it", p.shown())
	}
	return ft
}

// prepositions introduce the namespace, the user and the host.
var prepositions = []string{"in", "by", "at"}

// isName reports whether the next token is a name rather than a preposition.
func (p *scriptParser) isName() bool {
	next := p.tokens[0]
	return !next.isEnd && (next.isQuoted || !slices.Contains(prepositions, next.text))
}

func (p *scriptParser) requests() Requests {
	var r Requests
	r.Verb = anyOr(p.word("a verb, such as list, write or *"))
	if p.isName() {
		r.Resource = anyOr(p.word("a resource"))
	}
	if p.isName() {
		r.Name = p.word("a name")
	}
	if p.accept("in") {
		r.Namespace = p.word("a namespace")
	}
	if p.accept("by") {
		r.User = p.word("a user")
	}
	if p.accept("at") {
		r.Host = p.word("a HOST as in the URL")
	}
	if !p.tokens[0].isEnd {
		p.fail("%s: after the verb come the resource, the name, in NAMESPACE, by USER and at HOST, in this order",
			p.shown())
	}
	return r
}

// anyOr returns "" for the wildcard "*", and otherwise the text.
func anyOr(text string) string {
	if text == "*" {
		return ""
	}
	return text
}

// nextCount returns which count comes next. Each may occur once in a line.
func (p *scriptParser) nextCount() string {
	switch next := p.tokens[0].text; next {
	case "skip", "every", "at", "seed":
		return next
	}
	return "how many times"
}

func (p *scriptParser) count(ft *Fault) {
	switch {
	case p.accept("skip"):
		ft.Skip = p.number("how many requests pass")
	case p.accept("every"):
		ft.Every = p.ordinal()
	case p.accept("at"):
		p.expect("rate")
		rate, err := strconv.ParseFloat(p.tokens[0].text, 64)
		if err != nil {
			p.fail("%s, not a rate such as 0.1", p.shown())
		}
		ft.Rate = rate
		p.word("a rate")
	case p.accept("seed"):
		ft.Seed = uint64(p.number("a seed"))
	case p.accept("always"):
		ft.Times = Always
	case p.accept("once"):
		ft.Times = 1
	default:
		ft.Times = p.number("one of: skip N, every Nth, at rate R, seed N, N times, once, always")
		p.expect("times")
		if ft.Times == 0 {
			p.fail("0 times means never: give 1 or more")
		}
	}
}

func (p *scriptParser) effect() Effect {
	switch p.expect("refuse", "reply", "cut", "hang", "drop", "reset", "stall", "truncate", "lie") {
	case "refuse":
		return p.refuse()
	case "reply":
		return p.reply()
	case "cut":
		return p.cut()
	case "hang":
		p.expect("after")
		return Hang{After: p.bytes()}
	case "truncate":
		return Truncate{}
	case "drop":
		if p.expect("request", "answer") == "request" {
			return DropRequest{}
		}
		return DropAnswer{}
	case "reset":
		when := p.expect("before", "after")
		p.expect("acting")
		return Reset{ActsFirst: when == "after"}
	case "lie":
		p.expect("about")
		n := p.number("a number of changes")
		p.expect("changes", "change")
		return Lie{Changes: n}
	}
	return Stall{}
}

func (p *scriptParser) cut() Effect {
	p.expect("after")
	if !p.accept("frame") {
		return Cut{After: p.bytes()}
	}
	f := CutFrame{Frame: p.number("a number of a frame")}
	switch {
	case p.accept("plus"):
		f.Extra = p.bytes()
	case p.accept("minus"):
		f.Extra = -p.bytes()
	}
	return f
}

func (p *scriptParser) bytes() int {
	n := p.number("a number of bytes")
	p.expect("bytes", "byte")
	return n
}

func (p *scriptParser) refuse() Effect {
	f := Refuse{Code: p.number("a code such as 503")}
	if p.accept("reason") {
		f.Reason = p.word("a reason")
	}
	if p.accept("message") {
		f.Message = p.word("a message")
	}
	if p.accept("retry-after") {
		f.RetryAfter = p.duration()
	}
	return f
}

func (p *scriptParser) reply() Effect {
	f := Reply{Code: p.number("a code such as 200")}
	for p.accept("header") {
		if f.Header == nil {
			f.Header = map[string]string{}
		}
		name := p.word("a header's name")
		f.Header[name] = p.word("a header's value")
	}
	if p.accept("body") {
		f.Body = p.word("a body")
	}
	return f
}

// plainWord matches words that need no quotes in a script.
var plainWord = regexp.MustCompile(`^[-A-Za-z0-9_./*|,:]*[-A-Za-z0-9_./*|]$`)

// word quotes a text if a script requires that.
func word(text string) string {
	if !plainWord.MatchString(text) || slices.Contains(prepositions, text) {
		return strconv.Quote(text)
	}
	return text
}
