// Package failpoint marks points at which a test may end the daemon. Only tests set the hook.
package failpoint

// Hook is called at every point with its name. It is set once, before any
// point is reached.
var Hook func(name string)

// Reach calls Hook, if there is one.
func Reach(name string) {
	if Hook != nil {
		Hook(name)
	}
}
