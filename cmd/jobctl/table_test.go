package main

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func raw(text string) json.RawMessage { return json.RawMessage(text) }

const status = `{"targets":{"w1/low":{"paused":false,"concurrency":1,"length":0},"größe":{"paused":true,"concurrency":10,"length":123}}}`

func TestPlainTable(t *testing.T) {
	want := "TARGET | CONCURRENCY | LENGTH | PAUSED\n" +
		"------ | ----------- | ------ | ------\n" +
		"w1/low | 1           | 0      | no    \n" +
		"größe  | 10          | 123    | yes   \n"
	if diff := cmp.Diff(want, targetTable(raw(status)).text()); diff != "" {
		t.Error(diff)
	}
}

func TestTableStyles(t *testing.T) {
	want := "TARGET  CONCURRENCY  LENGTH  PAUSED\n" +
		"w1/low            1       0  no\n" +
		"größe            10     123  yes\n"
	if diff := cmp.Diff(want, targetTable(raw(status)).styled(false).Render()+"\n"); diff != "" {
		t.Error(diff)
	}
	want = "\x1b[1mTARGET\x1b[0m  \x1b[1mCONCURRENCY\x1b[0m  \x1b[1mLENGTH\x1b[0m  \x1b[1mPAUSED\x1b[0m\n" +
		"w1/low            1       \x1b[2m0\x1b[0m  \x1b[2mno\x1b[0m\n" +
		"größe            10     123  \x1b[33myes\x1b[0m\n"
	if diff := cmp.Diff(want, targetTable(raw(status)).styled(true).Render()+"\n"); diff != "" {
		t.Error(diff)
	}
}

func TestTableOfLines(t *testing.T) {
	table := newGrid("worker", "targets", "paused")
	table.addLines([]string{"a", "(10.0.0.1)"}, []string{"x"}, []string{"no"})
	table.addLines([]string{"b", "(10.0.0.2)"}, []string{"x", "y", "z"}, []string{"no", "no", "yes"})
	want := "WORKER     | TARGETS | PAUSED\n" +
		"---------- | ------- | ------\n" +
		"a          | x       | no    \n" +
		"(10.0.0.1) |         |       \n" +
		"b          | x       | no    \n" +
		"(10.0.0.2) | y       | no    \n" +
		"           | z       | yes   \n"
	if diff := cmp.Diff(want, table.text()); diff != "" {
		t.Error(diff)
	}
}

// TestTableIsClean: names of targets do not reach the terminal as control sequences.
func TestTableIsClean(t *testing.T) {
	table := newGrid("a", "b")
	table.add("x\x1b[31m\ny", "\u009b2J\u202e")
	want := "A            | B             \n" +
		"------------ | --------------\n" +
		`x\x1b[31m\ny | \u009b2J\u202e` + "\n"
	if diff := cmp.Diff(want, table.text()); diff != "" {
		t.Error(diff)
	}
}
