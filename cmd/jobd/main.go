// Command jobd runs the rows of a MySQL table as jobs.
package main

import (
	"os"

	"gloom/cmd/internal/daemon"
	"gloom/cmd/jobd/bridge"
	"gloom/cmd/jobd/config"
)

func main() {
	bridge.Main()
	var cfg *config.Worker
	os.Exit(daemon.Program{
		Name:     "jobd",
		Short:    "The worker daemon: runs the rows of a MySQL table as jobs",
		Config:   config.DefaultWorkerPath,
		Load:     func(path string) (err error) { cfg, err = config.LoadWorker(path); return err },
		Warnings: func() []string { return cfg.Warnings },
		Run:      func() error { return run(cfg, openBridge, os.Stdout) },
	}.Main(os.Args[1:], os.Stdout, os.Stderr))
}
