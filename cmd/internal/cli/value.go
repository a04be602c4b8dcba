package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"
)

type size[T int | int64] struct {
	dst       *T
	low, high uint64
}

// Size returns a flag for a number of bytes from low to high: 16MiB, 64k, 1000000.
func Size[T int | int64](to *T, low, high uint64) pflag.Value { return size[T]{to, low, high} }

func (s size[T]) String() string {
	if s.dst == nil || *s.dst == 0 {
		return "0"
	}
	if *s.dst%(1<<10) == 0 {
		return Bytes(int64(*s.dst))
	}
	return strconv.FormatInt(int64(*s.dst), 10)
}

func (s size[T]) Set(v string) error {
	n, err := humanize.ParseBytes(v)
	if err != nil || n < s.low || n > s.high {
		return fmt.Errorf("must be a size such as 16MiB, 64k or 1000000, from %d bytes to %s", s.low, Bytes(int64(s.high)))
	}
	*s.dst = T(n)
	return nil
}

func (size[T]) Type() string { return "bytes" }

// Bytes formats a number of bytes in the form that a flag reads.
func Bytes(n int64) string { return strings.ReplaceAll(humanize.IBytes(uint64(max(n, 0))), " ", "") }

type choice struct {
	dst    *string
	values []string
}

// Choice returns a flag for one of a few words.
func Choice(to *string, values ...string) pflag.Value { return choice{to, values} }

func (c choice) String() string {
	if c.dst == nil {
		return ""
	}
	return *c.dst
}

func (c choice) Set(v string) error {
	if !slices.Contains(c.values, v) {
		return fmt.Errorf("must be one of %s", strings.Join(c.values, ", "))
	}
	*c.dst = v
	return nil
}

func (choice) Type() string { return "word" }
