package main

import "testing"

// TestPlaceholderIsData: a placeholder is data, and neither code nor an option, whatever the
// program's name is.
func TestPlaceholderIsData(t *testing.T) {
	for _, c := range [][]string{
		{"php", "/x.php", "{id}"}, {"sh", "-c", "echo $1", "sh", "{id}", "{type}"}, {"rm", "--", "{id}"}, {"rm", "-f", "--", "{id}"},
		{"convert", "-resize", "50%", "{id}", "out.png"}, {"env", "A=1", "./serve", "{type}"}, {"awk", "{print}"}, {"xargs", "-I{}", "cp", "{}", "to"},
	} {
		if err := checkTemplate(c); err != nil {
			t.Errorf("%q: %v", c, err)
		}
	}
	for _, c := range [][]string{
		{"sh", "-c", "{id}"}, {"sh", "-c", "--", "{id}"}, {"sh", "-c", "-e", "{id}"}, {"sh", "-ec", "--", "{id}"}, {"bash", "-c", "+e", "{id}"},
		{"env", "sh", "-c", "{id}"}, {"xargs", "sh", "-c", "{id}"}, {"nice", "-n5", "php", "-r", "{id}"},
		{"python3", "-c", "{id}"}, {"php8.2", "-r", "{id}"}, {"nodejs", "-e", "{id}"}, {"ruby3.1", "-e", "{type}"}, {"whatever", "--run", "{id}"},
		{"env", "A=1", "bash", "-o", "errexit", "-ec", "echo {type}"}, {"sh", "-c", "-e", "echo {type}"}, {"python3", "-c", `print("{id}")`},
		{"sh", "-cu", "rm -- {id}"}, {"perl", `-eprint "{id}"`}, {"php8.2", "-recho {id};"}, {"su", "nobody", "--command=rm {id}"},
		{"tool", "--id={id}"}, {"tool", "a-{id}"}, {"tool", "{id}{type}"}, {"ssh", "host", "run", "{id}"}, {"mawk", "{id}"}, {"env", "-i", "sed", "{id}"},
		{"./{type}"}, {"{id}", "x"},
	} {
		if err := checkTemplate(c); err == nil {
			t.Errorf("%q is taken", c)
		}
	}
}
