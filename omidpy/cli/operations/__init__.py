"""Operations of several steps, and the executor that carries them out: `omidpy fate`."""
