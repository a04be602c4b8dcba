package main

import (
	"encoding/json"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"gloom/bench/relay"
)

// relayGC is the relay's GOGC. It is large, because a tuned server would collect rarely, too: the
// limit that the relay shows should not include the cost of the collector.
const relayGC = 400

func relayCommand() *cobra.Command {
	var submit, work string
	var direct bool
	cmd := &cobra.Command{
		Use:     "relay",
		Short:   "run the relay, which shows the limit for a broker",
		GroupID: "reading",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(relayGC)
			r, err := relay.Start(submit, work, direct)
			if err != nil {
				return err
			}
			err = json.NewEncoder(os.Stderr).Encode(map[string]string{"message": "the relay is ready",
				"submit_addr": r.SubmitAddr(), "worker_addr": r.WorkerAddr()})
			if err != nil {
				return err
			}
			<-cmd.Context().Done()
			return r.Close()
		},
	}
	cmd.Flags().StringVar(&submit, "submit-addr", "127.0.0.1:0", "address for submitters: host:port or unix:/path")
	cmd.Flags().StringVar(&work, "worker-addr", "127.0.0.1:0", "address for workers, likewise")
	cmd.Flags().BoolVar(&direct, "bare", false, "use epoll directly instead of gnet's event loop")
	return cmd
}
