/* SPDX-License-Identifier: GPL-2.0-only */
/* What programs that look sockets up need of include/uapi/linux/bpf.h: the trimmed vmlinux.h has neither its macros nor these types. */
#ifndef TARN_POLL_BPF_H
#define TARN_POLL_BPF_H

#define BPF_TCP_LISTEN 10
#define BPF_TCP_NEW_SYN_RECV 12
#define BPF_F_CURRENT_NETNS (-1L)
#define BPF_ANY 0

struct bpf_sock_tuple {
	union {
		struct {
			__be32 saddr, daddr;
			__be16 sport, dport;
		} ipv4;
		struct {
			__be32 saddr[4], daddr[4];
			__be16 sport, dport;
		} ipv6;
	};
};

struct bpf_sock {
	__u32 bound_dev_if, family, type, protocol, mark, priority;
	__u32 src_ip4, src_ip6[4], src_port;
	__be16 dst_port, : 16;
	__u32 dst_ip4, dst_ip6[4];
	__u32 state;
	__s32 rx_queue_mapping;
};

#endif
