package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"
)

// sizeFlag is the flag that SizeFlag returns.
type sizeFlag[T int | int64] struct {
	dst       *T
	low, high uint64
}

// SizeFlag returns a flag for a number of bytes from low to high: 16MiB, 64k, 1000000.
func SizeFlag[T int | int64](to *T, low, high uint64) pflag.Value { return sizeFlag[T]{to, low, high} }

func (s sizeFlag[T]) String() string {
	if s.dst == nil || *s.dst == 0 {
		return "0"
	}
	if *s.dst%(1<<10) == 0 {
		return FormatBytes(int64(*s.dst))
	}
	return strconv.FormatInt(int64(*s.dst), 10)
}

func (s sizeFlag[T]) Set(v string) error {
	n, err := humanize.ParseBytes(v)
	if err != nil || n < s.low || n > s.high {
		return fmt.Errorf("must be a size such as 16MiB, 64k or 1000000, from %d bytes to %s", s.low, FormatBytes(int64(s.high)))
	}
	*s.dst = T(n)
	return nil
}

func (sizeFlag[T]) Type() string { return "bytes" }

// FormatBytes formats a number of bytes in the form that a flag reads.
func FormatBytes(n int64) string {
	return strings.ReplaceAll(humanize.IBytes(uint64(max(n, 0))), " ", "")
}

// choiceFlag is the flag that ChoiceFlag returns.
type choiceFlag struct {
	dst    *string
	values []string
}

// ChoiceFlag returns a flag for one of a few words.
func ChoiceFlag(to *string, values ...string) pflag.Value { return choiceFlag{to, values} }

func (c choiceFlag) String() string {
	if c.dst == nil {
		return ""
	}
	return *c.dst
}

func (c choiceFlag) Set(v string) error {
	if !slices.Contains(c.values, v) {
		return fmt.Errorf("must be one of %s", strings.Join(c.values, ", "))
	}
	*c.dst = v
	return nil
}

func (choiceFlag) Type() string { return "word" }
