//go:build linux

package peers

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/dovakiin0/agent-sandbox/bench/fleet"
)

// HAProxy looks the sandbox up in a map and sends the request there. It does less than the router: it passes all header
// fields on as they came and adds none.
func HAProxy() Contestant {
	return haproxy("haproxy", "")
}

// HAProxyFields is HAProxy with the router's work on header fields: X-Sandbox-* are dropped, forwarding fields added.
func HAProxyFields() Contestant {
	return haproxy("haproxy-fields", `	http-request del-header x-sandbox- -m beg
	http-request set-header x-forwarded-proto http
	http-request set-header x-forwarded-host %[req.hdr(host)]
	option forwardfor
`)
}

func haproxy(name, fields string) Contestant {
	return Contestant{
		Name: name, Drain: syscall.SIGUSR1, VersionArgs: []string{"-v"},
		Command: []string{"haproxy", "-db", "-f", "{dir}/haproxy.cfg"},
		Prepare: func(s Site) error {
			var table strings.Builder
			for i := range s.Sandboxes {
				fmt.Fprintf(&table, "%s %s\n", fleet.ID(i), fleet.Addr(i, 0))
			}
			if err := writeConfig(s, "sandboxes.map", table.String()); err != nil {
				return err
			}
			return writeConfig(s, "haproxy.cfg", s.expand(fmt.Sprintf(haproxyConfig, fields)))
		},
	}
}

// One thread for the one core. pool-low-conn makes a thread keep idle connections to so many addresses: without it one
// server line, however many addresses its requests go to, keeps a few, and nearly every request dials. The descriptor
// ratios let it keep them beside thousands of clients too. Limits that are not strict let it start where the descriptors
// do not suffice for so many connections on both sides.
const haproxyConfig = `
global
	nbthread 1
	maxconn 18000
	no strict-limits
	tune.pool-low-fd-ratio 90
	tune.pool-high-fd-ratio 95
	hard-stop-after 30s

defaults
	mode http
	timeout connect 5s
	timeout client 180s
	timeout server 180s
	timeout tunnel 1h
	timeout http-keep-alive 120s

frontend clients
	bind 127.0.0.1:{http}
	http-request set-var(txn.sandbox) req.hdr(x-sandbox-id),map_str_ip({dir}/sandboxes.map)
	http-request deny deny_status 404 if !{ var(txn.sandbox) -m found }
	default_backend sandboxes

backend sandboxes
	http-reuse always
	http-request set-dst var(txn.sandbox)
	http-request set-dst-port int({backend})
%s	server any 0.0.0.0 pool-max-conn 20000 pool-low-conn 20000 pool-purge-delay 60s
`
