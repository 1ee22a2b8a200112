#!/usr/bin/perl
# No module of the source includes a module that is not below it, and in no module files call each other in a circle.
#
# The modules, from the ground up.  engine.h is what the engine promises: its modules
# keep it and the modules outside use it, and nothing else of the engine.
#
# Layers are counted by what the source uses, whatever the order here: a module, or a file
# outside of modules, stands one layer above the highest that it includes or whose functions
# it calls.
use strict;
use warnings;
use File::Find;
use FindBin;

my @rooms = qw(admission base io gate format xact index value shard cache buffer flush split compact durable scan write lifecycle checkpoint restart engine table protocol process connection served batch memcached fdw module);
my %floor = map { $rooms[$_] => $_ } 0 .. $#rooms;

sub room { $_[0] =~ m{^(?:engine/|memcached/)?(\w+)/[^/]+$} ? $1 : 'module' }
sub place { my $room = room($_[0]); $room =~ /^(?:engine|module)$/ ? $_[0] : $room }

# The heights of places, by what each of them uses, and the circles among them.
sub heights
{
	my ($uses) = @_;
	my (%height, $height, @path, @circles);
	$height = sub {
		my ($place) = @_;
		return $height{$place} if $height{$place};
		if (exists $height{$place})
		{
			my ($from) = grep { $path[$_] eq $place } 0 .. $#path;
			push @circles, join ' → ', @path[$from .. $#path], $place;
			return 0;
		}
		$height{$place} = 0;
		push @path, $place;
		my $below = 0;
		for (map { $height->($_) } grep { $_ ne $place } sort keys %{$uses->{$place}}) { $below = $_ if $_ > $below }
		pop @path;
		return $height{$place} = $below + 1;
	};
	$height->($_) for sort keys %$uses;
	return (\%height, @circles);
}

my (%arrows, $files, %uses, %names, %named, %defined, %file_of);
# below this checkout's src, whatever the names of the folders above it
my $source = "$FindBin::RealBin/../src";
find({ no_chdir => 1, wanted => sub {
	return unless m{^\Q$source\E/(.*\.[ch])$};
	my ($file, $from) = ($1, room($1));
	open my $handle, '<', $_ or die "$_: $!";
	my $text = do { local $/; <$handle> };
	$files++;
	while ($text =~ /^(.*)\n(kv_\w+)\([^;{]*\)\n\{/mg)
	{
		my ($type, $function) = ($1, $2);
		$defined{$function} = place($file);
		$file_of{$function} = $file unless $type =~ /\bstatic\b/;
	}
	my $code = $text =~ s{/\*.*?\*/|"[^"\n]*"|^extern [^;]*;}{}gsmr;
	$names{$file}{$_} = $named{place($file)}{$_} = 1 for $code =~ /\b(kv_\w+)\b/g;
	for my $header (grep { -e "$source/$_" } $text =~ /^#include "(\S+)"/mg)
	{
		$uses{place($file)}{place($header)} = 1;
		next unless $header =~ m{/};
		my $to = room($header);
		die "not ok - $file: \"$from\" or \"$to\" is no module\n" if grep { !exists $floor{$_} } $from, $to;
		next if $header eq 'engine/engine.h' && $file !~ m{^engine/base/};
		$arrows{"$file includes $header, which"} = 1 if $floor{$to} > $floor{$from}
			|| ($header =~ /^engine/ && $file !~ /^engine/) || ($header =~ /internal\.h$/ && $to ne $from);
	}
} }, $source);

for my $place (keys %named) { $uses{$place}{$_} = 1 for grep { defined } @defined{keys %{$named{$place}}} }
my ($height, @circles) = heights(\%uses);
my %height = %$height;
my ($top) = sort { $b <=> $a } values %height;
for my $n (reverse 1 .. $top) { print "# layer $n: ", join(' ', grep { $height{$_} == $n } sort keys %height), "\n" }
print "# layers: $top\n";
print "# $_ is a circle\n" for @circles;
print "# $_ is an arrow upwards\n" for sort keys %arrows;
print(($files && !%arrows && !@circles ? 'ok' : 'not ok'), " - modules include and call modules below them\n");

my %calls;
for my $file (grep { /\.c$/ } keys %names)
{
	$calls{$file}{$_} = 1 for grep { room($_) eq room($file) } grep { defined } @file_of{keys %{$names{$file}}};
}
my (undef, @file_circles) = heights(\%calls);
print "# $_ is a circle of calls\n" for @file_circles;
print((%calls && !@file_circles ? 'ok' : 'not ok'), " - in each module files call files below them\n");
