//! What users rely on, over every way to carry a rule out: one suite, so that all behave the same.
//!
//! ```text
//!   client                       host (rules)                     server
//!   192.168.64.1, .130 ──── 192.168.64.2   10.0.1.1 ──── 10.0.1.2, .3
//!   fd64::1, ::130     eth0 left fd64::2   fd01::1 right eth0 fd01::2, ::3
//! ```
//!
//! With a router behind the host, see [`icmp`]; with VLANs, see [`headers`].
//!
//! Services answer `who?` with their name and send everything else back. Packets that no program would send are
//! built field by field ([`packet`]) and put onto the client's wire ([`wire`]).

mod capture;
mod checksums;
mod errors;
mod far;
mod flood;
mod fragments;
mod headers;
mod host;
mod icmp;
mod kernel;
mod kills;
mod neighbour;
mod packet;
mod program;
mod requests;
mod rules;
mod scene;
mod serve;
mod sizes;
mod sources;
mod tcp;
mod traffic;
mod truncated;
mod tunnel;
mod way;
mod wire;

use way::Way;

/// The tests of one way.
macro_rules! behaviours {
    ($way:expr; $($module:ident: $($behaviour:ident),+;)+) => {
        $(mod $module {
            use crate::tests::{$module, Way};
            $(
                #[test]
                #[ignore = "needs the lab"]
                fn $behaviour() {
                    $module::$behaviour($way);
                }
            )+
        })+
    };
}

/// What becomes of packets, which depends on the kernel. The names of modules and tests begin with `lab_`: by that the lab
/// knows them, and by `lab_kernel` and `lab_oldest` for which kernels they are.
macro_rules! carried_by {
    ($name:ident, $way:expr) => {
        mod $name {
            behaviours! {
                $way;
                requests:
                    lab_are_answered_from_the_address_asked,
                    lab_from_behind_a_bridge_are_answered,
                    lab_in_a_vrf_are_answered,
                    lab_between_ports_of_a_bridge_are_answered;
                headers:
                    lab_with_vlan_tags_arrive,
                    lab_with_a_type_of_service_take_its_route;
                checksums:
                    lab_of_zero_stay_zero,
                    lab_that_compute_to_zero_arrive_right,
                    lab_left_to_the_device_arrive_right,
                    lab_completed_behind_the_host_are_right;
                sizes:
                    lab_from_nothing_to_64_kib_arrive;
                sources:
                    lab_of_nobody_reach_nobody,
                    lab_from_where_no_answer_goes_are_filtered,
                    lab_of_somebody_elses_flow_are_filtered,
                    lab_by_a_bridge_are_filtered_as_it_says,
                    lab_in_a_vrf_are_filtered_as_their_link_says,
                    lab_that_routing_rules_answer_elsewhere_are_filtered;
                icmp:
                    lab_let_tcp_find_the_path_mtu;
                tcp:
                    lab_bulk_arrives_intact_both_ways;
                neighbour:
                    lab_find_a_server_whose_hardware_address_changed;
                truncated:
                    lab_or_lying_do_not_arrive;
            }
        }
    };
}

/// What rules mean, and what becomes of traffic while they change.
macro_rules! changed_by {
    ($name:ident, $way:expr) => {
        mod $name {
            behaviours! {
                $way;
                rules:
                    lab_with_the_longest_source_prefix_win,
                    lab_for_any_local_address_hold_for_all_of_them,
                    lab_for_any_local_address_hold_without_forwarding,
                    lab_for_ranges_lead_port_by_port,
                    lab_for_several_targets_lead_to_each,
                    lab_that_are_removed_leave_the_host_to_itself,
                    lab_that_are_removed_leave_the_server_to_itself,
                    lab_leave_clients_of_the_server_itself_alone,
                    lab_followed_by_others_answer_from_the_address_asked_last,
                    lab_count_every_packet_once;
                traffic:
                    lab_of_other_rules_is_not_disturbed,
                    lab_of_a_replaced_rule_loses_nothing,
                    lab_under_way_arrives_whatever_changes,
                    lab_goes_on_while_another_agent_comes_up,
                    lab_follows_the_route_to_the_server,
                    lab_finds_a_server_whose_device_is_new;
            }
        }
    };
}

/// The same on a bond, whose module not every guest has.
macro_rules! bonded_by {
    ($name:ident, $way:expr) => {
        mod $name {
            behaviours! {
                $way;
                requests:
                    lab_by_a_bond_are_answered,
                    lab_go_on_by_the_other_port_of_a_bond;
                sources:
                    lab_by_a_bond_are_filtered_as_it_says;
            }
        }
    };
}

mod lab_software_bonds {
    bonded_by!(lab_redirect_nftables, Way::Nftables);
    bonded_by!(lab_redirect_tc, Way::Tc);
    bonded_by!(lab_redirect_xdp_redirect, Way::XdpRedirect);
}

/// What XDP leaves to the tc programs.
macro_rules! beyond_xdp_by {
    ($name:ident, $way:expr) => {
        mod $name {
            behaviours! {
                $way;
                headers:
                    lab_with_ipv4_options_arrive,
                    lab_with_ipv6_extension_headers_arrive,
                    lab_from_a_tunnel_without_ethernet_arrive;
                fragments:
                    lab_in_any_order_arrive_whole,
                    lab_of_two_clients_are_kept_apart,
                    lab_for_the_host_itself_stay_there,
                    lab_that_find_no_room_are_counted,
                    lab_straight_to_the_server_stay_as_they_are;
                icmp:
                    lab_of_a_narrow_link_behind_a_router_reach_the_client,
                    lab_of_a_narrow_link_of_the_host_reach_the_client,
                    lab_quote_what_the_client_sent,
                    lab_of_a_closed_port_reach_the_client,
                    lab_of_a_client_that_has_gone_reach_the_server,
                    lab_of_a_time_exceeded_reach_the_client,
                    lab_that_redirect_reach_nobody;
                tunnel:
                    lab_through_a_tunnel_are_answered;
            }
        }
    };
}

/// Against those who forge clients.
macro_rules! withstood_by {
    ($name:ident, $way:expr) => {
        mod $name {
            behaviours! {
                $way;
                flood:
                    lab_leaves_idle_connections_alone,
                    lab_lets_no_answer_leave_without_its_flow;
            }
        }
    };
}

/// What the agent does.
macro_rules! managed_by {
    ($name:ident, $way:expr) => {
        mod $name {
            behaviours! {
                $way;
                program:
                    lab_outlives_its_agent_and_leaves_the_host_as_it_was,
                    lab_loses_nothing_when_an_agent_dies_while_it_takes_over,
                    lab_carries_on_with_the_rules_of_before_when_up_fails,
                    lab_restores_what_a_new_firewall_has_flushed,
                    lab_says_that_nothing_passes_without_forwarding;
                kills:
                    lab_loses_nothing_whatever_is_killed,
                    lab_keeps_what_a_rule_needs_after_a_killed_up;
                host:
                    lab_says_what_its_packets_bypass,
                    lab_says_that_it_forwards_whatever_comes;
            }
        }
    };
}

/// What the host does with packets, and BPF would not.
macro_rules! hosted_by {
    ($name:ident, $way:expr) => {
        mod $name {
            behaviours! {
                $way;
                host:
                    lab_with_ipsec_policies_has_them_obeyed,
                    lab_obeys_ipsec_policies_that_appear;
            }
        }
    };
}

/// What does not depend on how BPF delivers.
macro_rules! ruled_by {
    ($name:ident, $way:expr) => {
        mod $name {
            behaviours! {
                $way;
                rules:
                    lab_by_the_hundred_thousand_load_and_list_in_seconds;
            }
        }
    };
}

withstood_by!(lab_long_redirect_tc_flood, Way::Tc);
withstood_by!(lab_redirect_xdp_redirect_flood, Way::XdpRedirect);

/// What becomes of tarn's own table.
macro_rules! tabled_by {
    ($name:ident, $way:expr) => {
        mod $name {
            behaviours! {
                $way;
                program:
                    lab_leaves_alone_what_was_deleted_by_hand;
            }
        }
    };
}

tabled_by!(lab_redirect_nftables_table, Way::Nftables);

/// What BPF does past the host, until it is noticed.
macro_rules! bypassed_by {
    ($name:ident, $way:expr) => {
        mod $name {
            behaviours! {
                $way;
                host:
                    lab_obeys_ipsec_policies_that_appear_without_an_agent;
            }
        }
    };
}

bypassed_by!(lab_redirect_tc_past_ipsec, Way::Tc);

hosted_by!(lab_kernel_redirect_tc_host, Way::Tc);
hosted_by!(lab_redirect_nftables_host, Way::Nftables);

ruled_by!(lab_long_redirect_by_nftables, Way::Nftables);
ruled_by!(lab_redirect_by_bpf, Way::XdpRedirect);

managed_by!(lab_redirect_nftables_by_tarn, Way::Nftables);
managed_by!(lab_long_redirect_tc_by_tarn, Way::Tc);
managed_by!(lab_redirect_xdp_redirect_by_tarn, Way::XdpRedirect);

beyond_xdp_by!(lab_redirect_nftables_beyond_xdp, Way::Nftables);
beyond_xdp_by!(lab_oldest_redirect_tc_beyond_xdp, Way::Tc);
beyond_xdp_by!(lab_redirect_xdp_redirect_beyond_xdp, Way::XdpRedirect);

carried_by!(lab_oldest_redirect_nftables, Way::Nftables);
carried_by!(lab_kernel_redirect_tc, Way::Tc);
carried_by!(lab_redirect_xdp_redirect_packets, Way::XdpRedirect);

changed_by!(lab_redirect_nftables, Way::Nftables);
changed_by!(lab_long_redirect_tc, Way::Tc);
changed_by!(lab_redirect_xdp_redirect, Way::XdpRedirect);
