#!/usr/bin/perl
# No room of the source includes a room that is not below it.
#
# The rooms, from the ground up.  engine.h is what the engine promises: its rooms
# keep it and the rooms outside use it, and nothing else of the engine.
use strict;
use warnings;
use File::Find;
use FindBin;

my @rooms = qw(admission base io gate format xact index value shard cache slot freeze durable scan write life barrier restart engine table fdw module);
my %floor = map { $rooms[$_] => $_ } 0 .. $#rooms;

sub room { $_[0] =~ m{^(?:engine/)?(\w+)/[^/]+$} ? $1 : 'module' }

my (%arrows, $files);
find({ no_chdir => 1, wanted => sub {
	return unless m{/src/(.*\.[ch])$};
	my ($file, $from) = ($1, room($1));
	open my $source, '<', $_ or die "$_: $!";
	$files++;
	while (<$source>)
	{
		next unless m{^#include "((?:engine|table|fdw|admission)/\S+)"};
		my ($header, $to) = ($1, room($1));
		die "not ok - $file: \"$from\" or \"$to\" is no room\n" if grep { !exists $floor{$_} } $from, $to;
		next if $header eq 'engine/engine.h' && $file !~ m{^engine/base/types};
		$arrows{"$file includes $header, which"} = 1 if $floor{$to} > $floor{$from}
			|| ($header =~ /^engine/ && $file !~ /^engine/) || ($header =~ /internal\.h$/ && $to ne $from);
	}
} }, "$FindBin::RealBin/../src");

print "# $_ is an arrow upwards\n" for sort keys %arrows;
print(($files && !%arrows ? 'ok' : 'not ok'), " - rooms include rooms below them\n");
