//go:build linux

package peers

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/dovakiin0/agent-sandbox/bench/fleet"
)

// Nginx looks the sandbox up in a map and sends the request to an upstream of its own, because only upstreams keep
// connections. It does less than the router: it passes header fields on and adds none.
func Nginx() Contestant { return nginx("nginx", "") }

// NginxFields is nginx with the router's work on header fields.
func NginxFields() Contestant {
	var fields strings.Builder
	for _, name := range []string{"ID", "Claim", "Namespace", "Port", "UID", "Pod-IP", "Timeout", "Token"} {
		fmt.Fprintf(&fields, "\t\t\tproxy_set_header X-Sandbox-%s \"\";\n", name)
	}
	fields.WriteString("\t\t\tproxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n" +
		"\t\t\tproxy_set_header X-Forwarded-Proto $scheme;\n\t\t\tproxy_set_header X-Forwarded-Host $http_host;\n")
	return nginx("nginx-fields", fields.String())
}

func nginx(name, fields string) Contestant {
	return Contestant{
		Name: name, Drain: syscall.SIGQUIT, VersionArgs: []string{"-v"},
		Command: []string{"nginx", "-p", "{dir}", "-e", "stderr", "-c", "{dir}/nginx.conf"},
		Prepare: func(s Site) error {
			var table, upstreams strings.Builder
			for i := range s.Sandboxes {
				fmt.Fprintf(&table, "\t\t%s s%d;\n", fleet.ID(i), i)
				fmt.Fprintf(&upstreams, "\tupstream s%d { server %s:%d; keepalive 64; keepalive_requests 1000000; }\n", i, fleet.Addr(i, 0), s.Backend)
			}
			return writeConfig(s, "nginx.conf", s.expand(fmt.Sprintf(nginxConfig, table.String(), upstreams.String(), fields)))
		},
	}
}

// One worker for the one core, as the user that starts it. Streams pass uploads on as they come, as the router does.
const nginxConfig = `
user root;
worker_processes 1;
daemon off;
pid {dir}/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile 20000;
events { worker_connections 19000; multi_accept on; }
http {
	access_log off;
	keepalive_requests 100000000;
	keepalive_timeout 120s;
	client_max_body_size 0;
	client_body_temp_path {dir}/body;
	proxy_temp_path {dir}/proxy;
	fastcgi_temp_path {dir}/fastcgi;
	uwsgi_temp_path {dir}/uwsgi;
	scgi_temp_path {dir}/scgi;
	map_hash_max_size 262144;
	map_hash_bucket_size 128;
	map $http_x_sandbox_id $sandbox {
%s	}
	map $http_upgrade $connection_field {
		default upgrade;
		"" "";
	}
%s	server {
		listen 127.0.0.1:{http} backlog=4096;
		location / {
			if ($sandbox = "") { return 404; }
			proxy_pass http://$sandbox;
			proxy_http_version 1.1;
			proxy_request_buffering off;
			proxy_read_timeout 180s;
			proxy_set_header Host $http_host;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection $connection_field;
%s		}
	}
}
`
