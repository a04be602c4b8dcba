package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// OptionError names the option whose value was refused.
type OptionError struct {
	Option string // the flag without its dashes
	Value  string
	Reason string
	Source string // a variable of the environment, or file:line; "" for the command line
}

func (e *OptionError) Error() string {
	s := fmt.Sprintf("--%s %q: %s", e.Option, e.Value, e.Reason)
	if e.Source != "" {
		s += " (from " + e.Source + ")"
	}
	return s
}

// Settings are the sources of options besides the command line. A flag takes precedence over the
// environment, and the environment over the file.
type Settings struct {
	EnvPrefix string   // prefix of environment variables: with GLOOM_, max-jobs is GLOOM_MAX_JOBS
	Names     []string // the options that may come from the environment or the file
	File      *File    // nil for none
	// Lookup looks up an environment variable; nil means os.LookupEnv.
	Lookup func(variable string) (value string, ok bool)
}

// EnvVariable returns the name that an option has in the environment.
func EnvVariable(prefix, option string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(option, "-", "_"))
}

// othersOptions are options that one program reads from the environment with the prefix GLOOM_.
// Another program would take such a variable for a misspelt one of its own.
var othersOptions = []string{"token", "token-file", "tls", "tls-ca", "tls-cert", "tls-key", "tls-client-ca", "context", "config"}

// WarnMisspelt warns of variables in the environment that are nearly the name of an option.
func WarnMisspelt(stderr io.Writer, program, prefix string, options []string) {
	for _, entry := range os.Environ() {
		variable, value, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(variable, prefix)
		name := strings.ToLower(strings.ReplaceAll(rest, "_", "-"))
		if !ours || value == "" || slices.Contains(options, name) || slices.Contains(othersOptions, name) {
			continue
		}
		if near := Suggest(name, options); near != "" {
			fmt.Fprintf(stderr, "%s: %s is not a variable of Gloom; did you mean %s?\n", program, CleanText(variable), EnvVariable(prefix, near))
		}
	}
}

// sourceAnnotation marks the flags that Apply has set, with their source.
const sourceAnnotation = "given"

// IsSet reports whether an option was set, by any source.
func IsSet(f *pflag.FlagSet, option string) bool {
	fl := f.Lookup(option)
	_, ok := fl.Annotations[sourceAnnotation]
	return ok || fl.Changed
}

const namesHint = "%s is also --%s; --help lists the options with their defaults"

// Apply sets the flags that neither the command line nor an earlier call has set. It returns an
// *OptionError or a *FileError, in a usage Fault.
func (s Settings) Apply(f *pflag.FlagSet) error {
	if err := s.File.check(s.Names); err != nil {
		return Usagef("%w", err)
	}
	lookup := s.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	for _, name := range s.Names {
		fl := f.Lookup(name)
		if fl == nil || IsSet(f, name) {
			continue
		}
		from := EnvVariable(s.EnvPrefix, name)
		value, ok := lookup(from)
		if !ok {
			value, from, ok = s.File.lookup(name)
		}
		if !ok {
			continue
		}
		if err := fl.Value.Set(value); err != nil {
			return Usagef("%w", invalidValue(fl, value, err, from)).SetHint(namesHint, EnvVariable(s.EnvPrefix, name), name)
		}
		_ = f.SetAnnotation(name, sourceAnnotation, []string{from}) // cannot fail: the flag exists
	}
	return nil
}

// invalidValue explains why a flag refuses a value; err is the error of its Set.
func invalidValue(f *pflag.Flag, value string, err error, from string) *OptionError {
	e := &OptionError{Option: f.Name, Value: value, Source: from}
	switch f.Value.Type() {
	case "int", "int64":
		e.Reason = "must be a whole number"
	case "uint", "uint64", "uint16", "uint8", "count":
		e.Reason = "must be a whole number of at least 0"
	case "float64":
		e.Reason = "must be a number"
	case "bool":
		e.Reason = "must be true or false"
	case "duration":
		e.Reason = "must be a time such as 1m30s, 5s or 200ms"
	default:
		e.Reason = err.Error()
	}
	if len(value) > 100 {
		e.Value = value[:100] + "…"
	}
	if _, err := strconv.ParseFloat(value, 64); err == nil && e.Reason == "must be a whole number" && !strings.ContainsAny(value, ".eExX") {
		e.Reason = "is too large"
	}
	return e
}
