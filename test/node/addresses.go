package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
)

// runtimePort is where a runtime listens on the address of its pod.
const runtimePort = 8888

// addresses hands out the pod addresses 10.x.0.2 to 10.x.255.254 of one x from 128 to 255.
type addresses struct {
	x          byte
	held       net.Listener // on 127.x.0.1; while it is open no other agent takes the same x
	reuseFirst bool

	mu       sync.Mutex
	last     uint16 // host bits of the newest address that was never used before
	used     map[uint16]bool
	released []uint16 // oldest first
}

// claimAddresses takes a network that no other agent on this machine holds and records it in a file, or takes back the
// one recorded there, which the pods of an earlier run of this agent still have.
func claimAddresses(file string, reuseFirst bool) (*addresses, error) {
	recorded, err := os.ReadFile(file)
	if err == nil {
		x, err := strconv.ParseUint(strings.TrimSpace(string(recorded)), 10, 8)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return holdAddresses(byte(x), reuseFirst)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, i := range rand.Perm(128) {
		a, err := holdAddresses(byte(128+i), reuseFirst)
		if err != nil {
			continue
		}
		return a, os.WriteFile(file, []byte(strconv.Itoa(int(a.x))), 0o600)
	}
	return nil, errors.New("all networks in 127.128.0.0/9 are held by other agents")
}

func holdAddresses(x byte, reuseFirst bool) (*addresses, error) {
	held, err := net.Listen("tcp4", fmt.Sprintf("127.%d.0.1:%d", x, runtimePort))
	if err != nil {
		return nil, fmt.Errorf("hold the network 10.%d.0.0/16: %w", x, err)
	}
	return &addresses{x: x, held: held, reuseFirst: reuseFirst, last: 1, used: map[uint16]bool{}}, nil
}

// Close gives the network back.
func (a *addresses) Close() error { return a.held.Close() }

func (a *addresses) network() netip.Prefix {
	return netip.PrefixFrom(a.address(0), 16)
}

func (a *addresses) address(host uint16) netip.Addr {
	return netip.AddrFrom4([4]byte{10, a.x, byte(host >> 8), byte(host)})
}

// take hands out a free address: one that was never used, as long as there are any, then the one released longest ago;
// or, with reuseFirst, the one released last.
func (a *addresses) take() (netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reuseFirst && len(a.released) > 0 {
		host := a.released[len(a.released)-1]
		a.released = a.released[:len(a.released)-1]
		a.used[host] = true
		return a.address(host), nil
	}
	for a.last < 0xfffe {
		a.last++
		if !a.used[a.last] {
			a.used[a.last] = true
			return a.address(a.last), nil
		}
	}
	if len(a.released) == 0 {
		return netip.Addr{}, errors.New("all pod addresses are in use")
	}
	host := a.released[0]
	a.released = a.released[1:]
	a.used[host] = true
	return a.address(host), nil
}

// keep marks an address as used, if it is one of this network.
func (a *addresses) keep(ip netip.Addr) bool {
	if !a.network().Contains(ip) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used[hostBits(ip)] = true
	return true
}

// release makes an address free again.
func (a *addresses) release(ip netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	host := hostBits(ip)
	if a.used[host] {
		delete(a.used, host)
		a.released = append(a.released, host)
	}
}

func hostBits(ip netip.Addr) uint16 {
	b := ip.As4()
	return uint16(b[2])<<8 | uint16(b[3])
}

// loopback is the address on this machine that stands for that of a pod.
func loopback(pod netip.Addr) string {
	b := pod.As4()
	b[0] = 127
	return netip.AddrFrom4(b).String()
}

// listenAddress is where the runtime of the pod with this address listens.
func listenAddress(pod netip.Addr) string {
	return net.JoinHostPort(loopback(pod), strconv.Itoa(runtimePort))
}
