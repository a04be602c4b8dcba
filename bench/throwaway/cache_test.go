package throwaway

import (
	"testing"
	"time"
)

// TestCacheDirs: a process that fills a directory does not wait for a process that fills another
// directory.
func TestCacheDirs(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	err := WithCacheDir("a", func(string) error {
		done := make(chan error, 1)
		go func() { done <- WithCacheDir("b", func(string) error { return nil }) }()
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Second):
			t.Error("the directory b waits for the directory a")
			return nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
