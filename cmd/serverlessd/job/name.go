package job

import (
	"fmt"
	"regexp"
	"strings"
)

// These are the maximum lengths of names, in bytes.
const (
	MaxClient = 64
	MaxType   = 128
)

// DefaultClient is the client of requests that name none.
const DefaultClient = "default"

var (
	clientPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.]*$`)
	typePattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:@+-]*$`)
)

// CheckClient returns an error if name cannot be the name of a client.
func CheckClient(name string) error {
	return checkName("client", name, clientPattern, MaxClient, "letters, digits, _ and ., not beginning with a .")
}

// CheckType returns an error if name cannot be the name of a type.
func CheckType(name string) error {
	return checkName("type", name, typePattern, MaxType, "letters, digits, _ . : @ + and -, beginning with a letter or digit")
}

func checkName(label, name string, form *regexp.Regexp, limit int, charset string) error {
	if len(name) > limit {
		return fmt.Errorf("%s %.40q… has %d bytes; at most %d are allowed", label, name, len(name), limit)
	}
	if !form.MatchString(name) {
		return fmt.Errorf("%s %q: must be 1 to %d of %s", label, name, limit, charset)
	}
	return nil
}

// Jobtype returns the name under which a client's type is stored. No two pairs of client and type
// have the same jobtype, because a client has no hyphen.
func Jobtype(client, typ string) string { return client + "-" + typ }

// SplitJobtype splits a jobtype into client and type, at its first hyphen.
func SplitJobtype(jobtype string) (client, typ string, ok bool) { return strings.Cut(jobtype, "-") }
