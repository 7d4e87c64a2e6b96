package options

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"podcount/deploy"
	"podcount/internal/run/process"
)

// showWords returns the function that prints what words in place of flags ask for.
func (c *commandLine) showWords(words string) (show func(io.Writer) error, err error) {
	switch words {
	case "help":
		return printText(c.help()), nil
	case "version":
		return printText(process.Describe()), nil
	case "completion bash":
		return printText(bashScript(c.completions())), nil
	case "completion zsh":
		return printText(zshScript(c.completions())), nil
	case "completion fish":
		return printText(fishScript(c.completions())), nil
	}
	if strings.HasPrefix(words+" ", "completion ") {
		return nil, errors.New("completion needs the name of a shell: bash, zsh or fish")
	}
	return nil, fmt.Errorf("unexpected argument %q: without a hyphen, there are help, version and completion", words)
}

// completion is what a shell needs to complete a flag.
type completion struct {
	flag     string // as in -wire
	argument string // as in FILE; "" if the flag is a switch
	values   string // what the argument can be, separated by blanks; "" if that is no enumeration
	about    string // the beginning of its help
}

// completions returns all flags, in the order of the help.
func (c *commandLine) completions() (all []completion) {
	for _, section := range c.sections {
		for _, f := range section.flags {
			name, argument, _ := strings.Cut(f.usage, " ")
			about, _, _ := strings.Cut(f.about, " (")
			about, _, _ = strings.Cut(about, ";")
			about, _, _ = strings.Cut(about, ":")
			next := completion{flag: name, argument: argument, about: about}
			if strings.Contains(argument, "|") {
				next.values = strings.ReplaceAll(argument, "|", " ")
			}
			switch name {
			case "-controllers":
				next.values = "help"
				for _, controller := range c.program.Controllers {
					next.values += " " + controller.Name
				}
			case "-manifest[=PARTS]":
				next.flag = "-manifest"
				next.values = strings.Join(deploy.Parts, " ")
			}
			all = append(all, next)
		}
	}
	return all
}

// bashScript returns a script for bash, which takes the equals sign in -wire=json for a word of its own.
func bashScript(flags []completion) string {
	var names, switches, files []string
	var enumerations strings.Builder
	for _, f := range flags {
		names = append(names, f.flag)
		pattern := f.flag + "=" // the only form in which a switch has a value
		if f.argument == "" {
			switches = append(switches, f.flag)
		} else {
			pattern += "|" + f.flag
		}
		if f.values != "" {
			fmt.Fprintf(&enumerations, "\t%s) words='%s' ;;\n", pattern, f.values)
		}
		if f.argument == "FILE" {
			files = append(files, pattern)
		}
	}
	return `# To complete podcount's flags in bash: source <(podcount completion bash)
_podcount() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=
	if [ "$word" = = ]; then
		word= before+==
	elif [ "$before" = = ]; then
		before=${COMP_WORDS[COMP_CWORD-2]}=
	fi
	case ${before/#--/-} in
` + enumerations.String() + `	` + strings.Join(files, "|") + `) compopt -o default ;;
	completion) words='bash zsh fish' ;;
	[!-]*|` + strings.Join(switches, "|") + `)
		words='` + strings.Join(names, " ") + `'
		[ "$COMP_CWORD" -gt 1 ] || words+=' help version completion'
		;;
	esac
	local second= # of two hyphens
	[[ $word != --* ]] || second=-
	COMPREPLY=($(compgen -P "$second" -W "$words" -- "${word#"$second"}"))
}
complete -F _podcount podcount
`
}

// zshScript returns a script for zsh, which can be sourced, or be the file _podcount in a folder of fpath.
func zshScript(flags []completion) string {
	var specs strings.Builder
	escaped := strings.NewReplacer("'", `'\''`, `\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`)
	for _, f := range flags {
		spec := f.flag
		about := "[" + escaped.Replace(f.about) + "]"
		argument := ":" + escaped.Replace(f.argument)
		switch {
		case f.argument == "" && f.values != "":
			spec += "=-" + about + "::part:(" + f.values + ")" // It may follow the equals sign, and nothing else.
		case f.argument == "":
			spec += about
		case f.values != "":
			spec += "=" + about + argument + ":(" + f.values + ")"
		case f.argument == "FILE":
			spec += "=" + about + argument + ":_files"
		default:
			spec += "=" + about + argument + ": "
		}
		specs.WriteString("\t\t'" + spec + "' \\\n")
	}
	return `#compdef podcount
# To complete podcount's flags in zsh: source <(podcount completion zsh)
_podcount() {
	_arguments \
` + specs.String() + `		'1:word:(help version completion)' \
		'2:shell:{[[ $words[2] != completion ]] || compadd bash zsh fish}'
}
if [[ $funcstack[1] = _podcount ]]; then
	_podcount "$@"
else
	compdef _podcount podcount
fi
`
}

// fishScript returns a script for fish, where -o is an option with one hyphen and a long name.
func fishScript(flags []completion) string {
	script := `# To complete podcount's flags in fish: podcount completion fish | source
complete -c podcount -f
complete -c podcount -n __fish_use_subcommand -a 'help version completion'
complete -c podcount -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'
`
	escaped := strings.NewReplacer("'", `\'`, `\`, `\\`)
	for _, f := range flags {
		script += "complete -c podcount -o " + f.flag[1:] + " -d '" + escaped.Replace(f.about) + "'"
		switch {
		case f.argument == "FILE":
			script += " -rF"
		case f.argument != "":
			script += " -x"
		}
		if f.values != "" {
			script += " -a '" + f.values + "'"
		}
		script += "\n"
	}
	return script
}
