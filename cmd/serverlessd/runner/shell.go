package runner

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

// shell is the interpreter of the language sh. Its input is a script that grows with each step. A
// job runs in a subshell. The subshell inherits the settings of before and beforeEach.
type shell struct{}

// maxArgument is the size of the longest payload that is passed as an argument, too. The system's
// limit is 128 KiB.
const maxArgument = 100 << 10

func (shell) args(*Options) []string { return []string{"sh", "/dev/fd/3"} }

// open creates the file that is standard input for each job. The file has no name, so nobody can
// replace it.
func (shell) open(c *handlerProcess) ([]*os.File, error) {
	f, err := os.CreateTemp(c.runner.options.Dir, "payload-")
	if err != nil {
		return nil, err
	}
	c.payloadFile = f
	return []*os.File{f}, os.Remove(f.Name())
}

// quote returns s as a quoted word of a script, up to the first NUL, which a script cannot have.
func quote(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// endCommand is a command that prints an end line with the exit status of the commands before it. The
// secret is part of the command, and in no variable.
func (shell) endCommand(c *handlerProcess) string {
	return `printf '\n` + c.secret + ` %d 0\n' $?` + "\n"
}

func (s shell) greeting(c *handlerProcess) []byte { return []byte("exec 3<&-\n" + s.endCommand(c)) }

func (s shell) hook(c *handlerProcess, source string) []byte {
	return []byte("eval " + quote(source) + "\n" + s.endCommand(c))
}

func (s shell) task(c *handlerProcess, b Batch, j Job) ([]byte, error) {
	err := c.payloadFile.Truncate(0)
	if err == nil {
		_, err = c.payloadFile.WriteAt(append(bytes.Clone(j.Payload), '\n'), 0)
	}
	if err == nil {
		_, err = c.payloadFile.Seek(0, io.SeekStart) // needed on systems where opening the file again shares the offset
	}
	argument := "''"
	if len(j.Payload) <= maxArgument {
		argument = quote(string(j.Payload))
	}
	// set +e, because after a set -e in the hook "before" a failing job would end the handler process.
	return fmt.Appendf(nil, "set +e\n(exec </dev/fd/4 4<&-; export JOB_ID=%s JOB_TYPE=%s JOB_TRY=%d; set -- %s; eval %s)\n%s",
		quote(string(j.ID)), quote(b.Type), j.Tries, argument, quote(b.Handler.Body), s.endCommand(c)), err
}

func (shell) status(number int) (int, string) {
	switch number {
	case 0:
		return 200, ""
	case 75: // EX_TEMPFAIL
		return 100, "exit status 75"
	case 65: // EX_DATAERR
		return 400, "exit status 65"
	}
	return 500, fmt.Sprintf("exit status %d", number)
}
