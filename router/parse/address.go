package parse

import (
	"bytes"
	"net/netip"
	"time"
	"unsafe"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// Address is the sandbox that a request is for. Byte fields are views into the request's head.
type Address struct {
	ID, Claim []byte // one of the two
	Namespace []byte
	UID       []byte
	Port      uint16
	PodIP     netip.Addr    // a hint, or the zero Addr
	Timeout   time.Duration // 0: none asked for
}

// Addressing are the operator's rules for addresses.
type Addressing struct {
	Loopback        bool   // X-Sandbox-Pod-IP may be a loopback address
	Domain          string // hosts <port>-<id>[.<namespace>].<Domain> name a sandbox, if not empty
	DomainNamespace string // the namespace of hosts without one
}

// Names reports whether the request names any sandbox, by header or by host.
func (a *Addressing) Names(r *Request) bool {
	return r.ID != nil || r.Claim != nil || a.subdomain(r.Host) != nil
}

var (
	defaultNamespace = []byte(proto.DefaultNamespace)
	none             = []byte("None") // what the Python SDK sends for "no timeout"
)

// Read fills to from the routing fields of r, or from its host, and checks them in the order of the contract:
// id, namespace, port, pod IP, then the others.
func (a *Addressing) Read(r *Request, to *Address) record.Reason {
	*to = Address{ID: r.ID, Claim: r.Claim, Namespace: defaultNamespace, UID: r.UID, Port: proto.DefaultPort}
	switch {
	case r.ID != nil && r.Claim != nil:
		return record.TwoNames
	case r.ID != nil:
		if !proto.ValidLabel(r.ID) {
			if len(r.ID) == 0 {
				return record.IDRequired
			}
			return record.InvalidID
		}
	case r.Claim != nil:
		if !proto.ValidLabel(r.Claim) {
			return record.InvalidClaim
		}
	default:
		sub := a.subdomain(r.Host)
		if sub == nil {
			return record.IDRequired
		}
		if why := a.host(sub, to); why != record.OK {
			return why
		}
	}
	if r.Namespace != nil {
		if !proto.ValidLabel(r.Namespace) {
			return record.InvalidNamespace
		}
		to.Namespace = r.Namespace
	}
	if r.Port != nil {
		port, ok := proto.Port(r.Port)
		if !ok {
			return record.InvalidPort
		}
		to.Port = port
	}
	if r.PodIP != nil {
		ip, ok := a.podIP(r.PodIP)
		if !ok {
			return record.InvalidPodIP
		}
		to.PodIP = ip
	}
	if r.UID != nil && !validUID(r.UID) {
		return record.InvalidUID
	}
	if r.Timeout != nil && !bytes.Equal(r.Timeout, none) {
		d, ok := seconds(r.Timeout)
		if !ok {
			return record.InvalidTimeout
		}
		to.Timeout = d
	}
	return record.OK
}

// subdomain returns the part of host before the route domain, nil if there is none.
func (a *Addressing) subdomain(host []byte) []byte {
	if a.Domain == "" {
		return nil
	}
	if i := bytes.LastIndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	cut := len(host) - len(a.Domain) - 1
	if cut < 1 || host[cut] != '.' || !is(host[cut+1:], a.Domain) {
		return nil
	}
	return host[:cut]
}

// host reads <port>-<id> or <port>-<id>.<namespace>.
func (a *Addressing) host(sub []byte, to *Address) record.Reason {
	name, ns, named := bytes.Cut(sub, []byte("."))
	port, id, ok := bytes.Cut(name, []byte("-"))
	if !ok || !proto.ValidLabel(id) {
		return record.InvalidID
	}
	if to.Port, ok = proto.Port(port); !ok {
		return record.InvalidPort
	}
	to.ID = id
	if named {
		if !proto.ValidLabel(ns) {
			return record.InvalidNamespace
		}
		to.Namespace = ns
	} else if a.DomainNamespace != "" {
		to.Namespace = unsafe.Slice(unsafe.StringData(a.DomainNamespace), len(a.DomainNamespace))
	}
	return record.OK
}

// podIP reads a unicast address that a pod can have. IPv4-mapped IPv6 becomes IPv4, so that no spelling hides a loopback.
func (a *Addressing) podIP(b []byte) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(unsafe.String(unsafe.SliceData(b), len(b)))
	if err != nil || ip.Zone() != "" {
		return netip.Addr{}, false
	}
	ip = ip.Unmap()
	if ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip.IsLoopback() && !a.Loopback || ip == broadcast {
		return netip.Addr{}, false
	}
	return ip, true
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// validUID admits what a UID may be made of; the API server hands out UUIDs, the routes file any word.
func validUID(b []byte) bool {
	if len(b) == 0 || len(b) > 128 {
		return false
	}
	for _, c := range b {
		if !token[c] {
			return false
		}
	}
	return true
}

// longest is the largest timeout that is told from "no limit": the operator's own is always shorter.
const longest = 1 << 31

// seconds reads a positive decimal number of seconds.
func seconds(b []byte) (time.Duration, bool) {
	var whole, part int64
	scale := int64(time.Second)
	point := false
	digits := 0
	for _, c := range b {
		switch {
		case c == '.' && !point:
			point = true
		case c < '0' || c > '9':
			return 0, false
		case point:
			digits++
			scale /= 10
			part += int64(c-'0') * scale
		default:
			digits++
			whole = min(whole*10+int64(c-'0'), longest)
		}
	}
	d := time.Duration(whole)*time.Second + time.Duration(part)
	return d, digits > 0 && d > 0
}
