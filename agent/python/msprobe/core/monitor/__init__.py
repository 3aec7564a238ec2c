"""What mindstudio-probe's users run over the files of TrainerMon."""
