// SPDX-License-Identifier: GPL-2.0
/*
 * redirect: steers an address and port to another, and the answers back.
 *
 *            request: client -> 192.168.64.2:8080          10.0.1.2:8083 (namespace, container, other host)
 *   client  ----------->  [xdp] tc ingress  --- next hop --->  server
 *           <-----------  tc egress | tc ingress [xdp]  <----
 *            answer: 192.168.64.2:8080 -> client           10.0.1.2:8083 -> client
 *
 * Every device has the same programs, for either may be the client's or the server's. A packet is let go after two
 * bit tests unless one of its ports is in use; then one lookup tells what to do with it (struct flow). Only the
 * first packet of a flow, and one a second after it, looks at rules, routes and neighbours (decide.h).
 *
 * - tc ingress redirects requests and answers, straight into the next hop's device where it can. It also takes what
 *   XDP cannot: fragments, ICMP errors, packets whose checksum a local sender left to the device.
 * - tc egress restores the answers that the stack sends: those of servers on this host itself, those that came in by a
 *   device without our programs, and those that ingress left to the stack as they were, so that an error that the
 *   stack makes about one reaches the server. It also restores ICMP errors that the stack makes about requests.
 * - XDP does as tc ingress, for plain TCP and UDP, before an sk_buff is there.
 *
 * Whatever cannot be done here is left to the stack: fragmentation, making ICMP errors, neighbours to resolve. Requests
 * go there rewritten, answers as they are.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "shared.h"
#include "bpf/packet.h"
#include "bpf/maps.h"
#include "bpf/checksum.h"
#include "bpf/flows.h"
#include "bpf/decide.h"
#include "bpf/rewrite.h"
#include "bpf/icmp.h"
#include "bpf/fragment.h"
#include "bpf/tc.h"
#include "bpf/xdp.h"

char LICENSE[] SEC("license") = "GPL";

SEC("tc")
int redirect_in(struct __sk_buff *ctx)
{
	return tc_ingress(ctx, ETHERNET_LENGTH);
}

/* For devices whose packets begin with the IP header: tunnels, PPP. */
SEC("tc")
int redirect_in_ip(struct __sk_buff *ctx)
{
	return tc_ingress(ctx, 0);
}

SEC("tc")
int redirect_out(struct __sk_buff *ctx)
{
	return handle(ctx, ETHERNET_LENGTH, true);
}

SEC("tc")
int redirect_out_ip(struct __sk_buff *ctx)
{
	return handle(ctx, 0, true);
}

SEC("xdp")
int redirect_xdp(struct xdp_md *ctx)
{
	return xdp_ingress(ctx);
}

struct clock {
	__u64 jiffies;
	__u64 monotonic_ns;
};

/* Run by the user side to turn counters' jiffies into time. */
SEC("syscall")
int read_clock(struct clock *clock)
{
	clock->jiffies = bpf_jiffies64();
	clock->monotonic_ns = bpf_ktime_get_ns();
	return 0;
}
