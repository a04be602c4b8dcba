package runner

import (
	_ "embed"
	"fmt"
	"os"

	"gloom/cmd/serverlessd/job"

	"github.com/goccy/go-json"
)

//go:embed driver/node.js
var nodeDriver string

//go:embed driver/python.py
var pythonDriver string

//go:embed driver/php.php
var phpDriver string

// interpreters holds the interpreters of handler processes, by language.
var interpreters = map[string]interpreter{
	job.Shell: shell{},
	job.Node: driver{func(o *Options) []string {
		return []string{"node", fmt.Sprintf("--max-old-space-size=%d", max(o.MaxMemory>>20, 1)), "-e", nodeDriver}
	}},
	job.Python: driver{func(*Options) []string { return []string{"python3", "-c", pythonDriver} }},
	job.PHP: driver{func(o *Options) []string {
		return []string{
			"php", "-d", fmt.Sprintf("memory_limit=%d", o.MaxMemory), "-d", "max_execution_time=0", "-d", "display_errors=stderr",
			"-d", "log_errors=0", "-d", "html_errors=0", "-d", "output_buffering=0", "-r", phpDriver,
		}
	}},
}

// driver is a program that runs in an interpreter. The files in driver/ describe what it reads and
// writes.
type driver struct{ command func(o *Options) []string }

func (d driver) args(o *Options) []string { return d.command(o) }

func (driver) open(*handlerProcess) ([]*os.File, error) { return nil, nil }

// frame is the line of JSON that precedes the bytes of a frame.
type frame struct {
	Do     string `json:"do"`
	Size   int    `json:"size"`
	Code   int    `json:"code,omitempty"`
	Secret string `json:"secret,omitempty"`
	ID     job.ID `json:"id,omitempty"`
	Type   string `json:"type,omitempty"`
	Tries  int    `json:"tries,omitempty"`
}

func (f frame) append(to, bytes []byte) []byte {
	f.Size = len(bytes)
	head, _ := json.Marshal(&f) // no error: a struct of strings and numbers can always be encoded
	to = append(append(to, head...), '\n')
	return append(to, bytes...)
}

func (driver) greeting(c *handlerProcess) []byte {
	return frame{Do: "hello", Secret: c.secret}.append(nil, nil)
}

// appendCode appends a frame with a source, unless the handler process has the source, and returns the
// number of the source. A hook is not compiled in the same way as a job.
func (driver) appendCode(c *handlerProcess, do, source string) (number int, codeFrame []byte) {
	number, known := c.sources[do+source]
	if !known {
		number = len(c.sources) + 1
		c.sources[do+source] = number
		codeFrame = frame{Do: "code", Code: number}.append(nil, []byte(source))
	}
	return number, codeFrame
}

func (d driver) hook(c *handlerProcess, source string) []byte {
	number, codeFrame := d.appendCode(c, "hook", source)
	return frame{Do: "hook", Code: number}.append(codeFrame, nil)
}

func (d driver) task(c *handlerProcess, b Batch, j Job) ([]byte, error) {
	number, codeFrame := d.appendCode(c, "job", b.Handler.Body)
	return frame{Do: "job", Code: number, ID: j.ID, Type: b.Type, Tries: j.Tries}.append(codeFrame, j.Payload), nil
}

func (driver) status(number int) (int, string) { return number, "" }
